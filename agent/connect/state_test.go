package connect

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/connectivity"
	"liqo.io/agent/sharing/workload"
)

const barn = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")

var agreed = network.Blocks{Theirs: []netip.Prefix{netip.MustParsePrefix("241.3.4.0/24")}, Ours: []netip.Prefix{netip.MustParsePrefix("241.7.0.0/24")}}

func TestReasonsAgree(t *testing.T) {
	if reason.NetworkDown != workload.ReasonNetworkDown || reason.Off != connectivity.ReasonOff {
		t.Error("packages that cannot import each other call the same thing by two names")
	}
}

func TestDescribe(t *testing.T) {
	refused := func(why string) network.Status {
		return network.Status{State: network.Connecting, Problem: refused{&wire.Refused{Reason: why, Message: "no"}}, Blocks: agreed}
	}
	for _, tc := range []struct {
		name    string
		problem *connectivity.Problem
		status  network.Status
		wanted  bool
		unable  error
		want    string // status, reason, whether it is enabled
		says    string
	}{
		{"nothing is known", &connectivity.Problem{Reason: connectivity.ReasonUnknown, Message: "Not yet."}, network.Status{}, false, nil, "Unknown Connecting true", "Not yet."},
		{"off", &connectivity.Problem{Reason: connectivity.ReasonOff, Message: "Off."}, network.Status{}, false, nil, "False Off false", "Off."},
		{"several nodes", &connectivity.Problem{Reason: connectivity.ReasonSeveralNodes, Message: "Two."}, network.Status{}, false, nil, "False SeveralNodes false", "Two."},
		{"no TUN", nil, network.Status{Problem: errors.New("x"), Unable: true}, true, errors.New("no /dev/net/tun"), "False NotPossibleHere true", "no /dev/net/tun."},
		{"not decided yet", nil, network.Status{}, false, nil, "Unknown Connecting true", "being connected"},
		{"connected", nil, network.Status{State: network.Connected, Blocks: agreed}, true, nil, "True Connected true", "241.3.4.0/24; there, pods of this cluster have addresses in 241.7.0.0/24."},
		{"refused", nil, refused(wire.ReasonNoNetwork), true, nil, "False NotWanted true", "run there: liqo-agent network list"},
		{"left", nil, network.Status{State: network.Connecting, Problem: network.ErrLeft, Blocks: agreed}, true, nil, "False NotWanted true", "run there: liqo-agent network list"},
		{"an old agent", nil, refused(wire.ReasonNoSuchPath), true, nil, "False PeerWithoutNetwork true", "update it"},
		{"down", nil, network.Status{State: network.Silent, Problem: errors.New("no\x1banswer"), Blocks: agreed}, true, nil, "False NetworkDown true", "two clusters: no answer."},
		{"never connected", nil, network.Status{State: network.Connecting, Problem: errors.New(strings.Repeat("x", 9999))}, true, nil, "False CannotConnect true", "xxx"},
		{"without a reason", nil, network.Status{State: network.Connecting}, true, nil, "False CannotConnect true", "be connected."},
	} {
		got := describe(tc.problem, tc.status, tc.wanted, tc.unable)
		if text := fmt.Sprint(got.Status, " ", got.Reason, " ", got.Enabled); text != tc.want || !strings.Contains(got.Message, tc.says) || len(got.Message) > 2*maxWhy {
			t.Errorf("%s: %s %q, want %s", tc.name, text, got.Message, tc.want)
		}
	}
}

// TestStateChangesSeldom: a path that comes and goes all day changes what is shown a few times,
// and what is shown in the end is what is.
func TestStateChangesSeldom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var again atomic.Bool // somebody is to look again
		c := New(Config{Changed: func(peer.ClusterID) { again.Store(true) }})
		now := network.Status{State: network.Connecting, Since: time.Now(), Blocks: agreed}
		look := func() api.ConditionStatus {
			again.Store(false)
			return c.state(barn, true, nil, now, true, nil).Status
		}
		become := func(state network.State, why error) { now.State, now.Since, now.Problem = state, time.Now(), why }
		if got := look(); got != api.ConditionUnknown {
			t.Errorf("at first it is %s", got)
		}
		become(network.Connected, nil)
		if got := look(); got != api.ConditionTrue {
			t.Errorf("connected is %s", got)
		}
		become(network.Connecting, errors.New("reset"))
		if got := look(); got != api.ConditionTrue {
			t.Errorf("after a blink it is %s", got)
		}
		become(network.Connected, nil)
		before := c.state(barn, true, nil, now, true, nil)
		become(network.Connecting, errors.New("reset by port 1"))
		look()
		time.Sleep(graceLater)
		synctest.Wait()
		if !again.Load() || look() != api.ConditionFalse {
			t.Error("nobody is told of a path that stays away")
		}
		first := c.state(barn, true, nil, now, true, nil)
		now.Problem = errors.New("reset by port 2")
		if got := c.state(barn, true, nil, now, true, nil); got != first || got == before {
			t.Errorf("another error says %+v, before %+v", got, first)
		}

		shown, changes := first, 0
		const day = 24 * time.Hour
		for begun := time.Now(); time.Since(begun) < day; {
			for _, state := range []network.State{network.Connected, network.Silent} {
				become(state, nil)
				if got := c.state(barn, true, nil, now, true, nil); got != shown {
					shown, changes = got, changes+1
				}
				time.Sleep(7 * time.Second)
			}
		}
		if most := changeBurst + int(day/time.Minute); changes > most || changes < 2 {
			t.Errorf("it changed %d times a day, at most %d", changes, most)
		}
		for range 10 {
			if look() == api.ConditionFalse {
				break
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !again.Load() {
				t.Fatal("nobody is told that the state is another")
			}
		}
		if look() != api.ConditionFalse {
			t.Error("what is shown is not what is")
		}
		// A node whose network is back takes pods again, however often it was lost.
		become(network.Connected, nil)
		if look() != api.ConditionTrue {
			t.Error("it is connected, which is not shown")
		}
		now.Known = true
		c.show(barn, nil, now, true)
		if got := c.state(barn, false, nil, now, false, nil); got.Status != "" || len(c.stated)+len(c.shown) != 0 {
			t.Errorf("a peer with which nothing is shared: %+v, %d and %d kept", got, len(c.stated), len(c.shown))
		}
	})
}

// Pods that come and go at other providers change what there is to say about those, and nothing else.
func TestShowThirds(t *testing.T) {
	c := New(Config{Changed: func(peer.ClusterID) {}})
	status := network.Status{State: network.Connected, Known: true, Blocks: agreed}
	show := func() *workload.Network { return c.show(barn, nil, status, true) }
	first := show()
	if first.Thirds != nil || show() != first {
		t.Errorf("%+v", first)
	}
	pod, there := netip.MustParseAddr("241.9.0.5"), netip.MustParseAddr("241.7.1.5")
	status.Thirds = map[netip.Addr]netip.Addr{pod: there}
	second := show()
	if second.Thirds[pod] != there || !second.Alike(first) || first.Thirds != nil || show() != second {
		t.Errorf("%+v after %+v", second, first)
	}
	status.Blocks.Ours = []netip.Prefix{netip.MustParsePrefix("241.8.0.0/24")}
	if third := show(); third.Alike(second) {
		t.Errorf("%+v is like %+v", third, second)
	}
	if other := c.show("other", nil, status, true); other.Alike(show()) {
		t.Error("what is shown of another peer is like it")
	}
}

// What pods show is the truth of now, or what they showed as long as nothing is known.
func TestShow(t *testing.T) {
	up := network.Status{State: network.Connected, Known: true, Blocks: agreed}
	for _, tc := range []struct {
		name    string
		problem *connectivity.Problem
		status  network.Status
		ok      bool
		want    string // "nothing", "as it is", or why they are not ready
	}{
		{"connected", nil, up, true, ""},
		{"about to be connected", nil, network.Status{}, false, "as it is"},
		{"the nodes are not known", &connectivity.Problem{Reason: connectivity.ReasonUnknown}, network.Status{}, false, "as it is"},
		{"the bridge has no address yet", &connectivity.Problem{Reason: connectivity.ReasonElsewhere, Passing: true}, network.Status{}, false, "as it is"},
		{"the database was not read", nil, network.Status{State: network.Connecting}, true, "as it is"},
		{"nothing was agreed on", nil, network.Status{State: network.Connecting, Known: true}, true, "nothing"},
		{"switched off", &connectivity.Problem{Reason: connectivity.ReasonOff}, network.Status{}, false, "nothing"},
		{"it ends soon", &connectivity.Problem{Reason: connectivity.ReasonSeveralNodes, Message: "There are two."}, up, true, "soon: There are two."},
		{"it has ended", &connectivity.Problem{Reason: connectivity.ReasonSeveralNodes}, network.Status{}, false, "nothing"},
	} {
		c := New(Config{Changed: func(peer.ClusterID) {}})
		switch got := c.show(barn, tc.problem, tc.status, tc.ok); {
		case got == nil:
			if tc.want != "nothing" {
				t.Errorf("%s: nothing", tc.name)
			}
		case got.Unknown:
			if tc.want != "as it is" {
				t.Errorf("%s: as it is", tc.name)
			}
		case tc.want == "" && got.Down != "" || !strings.Contains(got.Down, tc.want) || len(got.Blocks) != 1:
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// Where there can be no network any more, pods run as if there had never been one. Before that is sure, they are not ready, and
// a peer or an agent that starts costs nobody his address.
func TestShowAbsence(t *testing.T) {
	why := func(reason string) error { return refused{&wire.Refused{Reason: reason, Message: "no"}} }
	for name, problem := range map[string]error{
		"nftables are read-only": syscall.EROFS, "switched off there": why(wire.ReasonNoNetwork), "left": network.ErrLeft, "an older agent": why(wire.ReasonNoSuchPath),
	} {
		bubble.Test(t, func(t *testing.T) {
			var again atomic.Bool
			c := New(Config{Changed: func(peer.ClusterID) { again.Store(true) }})
			now := network.Status{State: network.Connected, Since: time.Now(), Known: true, Blocks: agreed}
			look := func() string {
				again.Store(false)
				switch got := c.show(barn, nil, now, true); {
				case got == nil:
					return "nothing"
				case got != c.show(barn, nil, now, true):
					return "another one each time"
				case got.Unknown && got.Down == "":
					return "as it is"
				case got.Unknown:
					return "as it is, not ready"
				case got.Down != "":
					return "not ready"
				}
				return "ready"
			}
			want := func(at, want string) {
				t.Helper()
				if got := look(); got != want {
					t.Errorf("%s: %s: %s, want %s", name, at, got, want)
				}
			}
			later := func(wait time.Duration) {
				t.Helper()
				time.Sleep(wait)
				synctest.Wait()
				if !again.Load() {
					t.Errorf("%s: nobody looks again", name)
				}
			}
			absent := func() {
				now.State, now.Since, now.Problem, now.Unable = network.Connecting, time.Now(), problem, problem == syscall.EROFS
			}
			want("connected", "ready")
			absent()
			want("a blink", "ready")
			later(graceLater)
			want("a moment", "not ready")
			later(absentAfter - graceLater)
			want("for good", "nothing")
			now.Problem, now.Unable = errors.New("connection refused"), false
			want("it is away, too", "nothing")
			now.State, now.Since, now.Problem = network.Connected, time.Now(), nil
			want("connected again", "ready")
			now.State, now.Since, now.Problem = network.Connecting, time.Now(), errors.New("connection refused")
			look()
			time.Sleep(24 * time.Hour)
			want("only down", "not ready")

			c = New(Config{Changed: func(peer.ClusterID) { again.Store(true) }})
			now.Since, now.Problem = time.Now(), nil
			want("the agent starts", "as it is")
			absent()
			want("and is refused", "as it is")
			later(graceAtFirst)
			want("the grace is over", "as it is, not ready")
			later(absentAfter - graceAtFirst)
			want("for good after the start", "nothing")
		})
	}
}
