package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// fpSilo is the key of a peer that is not trusted.
var fpSilo = strings.Repeat("cd", 32)

// neighbours are two peers that are there: barn, whose key is trusted, and silo,
// whose key is not.
func neighbours(t *testing.T) *memory {
	m := &memory{status: farm().status}
	for _, p := range []control.Peer{
		{ID: idBarn, Name: "barn", Fingerprint: fpBarn, Addresses: []string{"192.0.2.7:6447"}, Trust: control.Trust{Mode: control.Trusted, Fingerprint: fpBarn}},
		{ID: idSilo, Name: "silo", Fingerprint: fpSilo, Addresses: []string{"192.0.2.8:6447"}},
	} {
		p.Phase, p.Verified, p.Code = "Present", true, codeOf(t, p.Fingerprint)
		m.peers = append(m.peers, p)
	}
	return m
}

// quick says at once what is being waited for.
var quick = pace{settle: time.Millisecond, believe: 50 * time.Millisecond}

// act runs a command and changes a peer as the output goes on: every line of
// output that contains a key of turns has its function called, once.
func act(t *testing.T, w *world, turns map[string]func(), args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return actUntil(t, t.Context(), w, turns, args...)
}

func actUntil(t *testing.T, parent context.Context, w *world, turns map[string]func(), args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	var mu sync.Mutex
	var out strings.Builder
	stderr, code = w.runTo(ctx, lines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		out.WriteString(line + "\n")
		for text, turn := range turns {
			if strings.Contains(line, text) {
				delete(turns, text)
				turn()
			}
		}
	}), args...)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%v did not end", args)
	}
	for text := range turns {
		t.Errorf("no line of the output contains %q", text)
	}
	return out.String(), stderr, code
}

// outgoing sets the direction towards a peer.
func outgoing(m *memory, id string, done int, reason, message string) func() {
	return func() {
		m.change(peerID(id), func(p *control.Peer) {
			p.Outgoing = control.Direction{Wanted: true, Joined: done == 7, Reason: reason, Message: message, Steps: allSteps(done), Since: now.Add(time.Duration(done))}
		})
	}
}

// Each step is told when it is done, and what is waited for when that takes a
// while, with what a person can do.
func TestConnectTellsTheSteps(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = quick
	m.decided = func(string) { outgoing(m, idBarn, 3, "", "")() }
	stdout, stderr, code := act(t, w, map[string]func(){
		"WAIT (remote) the PeeringRequest is there": outgoing(m, idBarn, 4, control.ReasonAwaitingAcceptance, "The provider has not decided yet."),
		"somebody at barn":                          outgoing(m, idBarn, 5, "", ""),
		"WAIT (local) its Adv":                      outgoing(m, idBarn, 7, "", ""),
	}, "peers", "connect", "barn")
	if code != ExitOK || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	golden(t, "connect-steps", stdout)
	if diff := cmp.Diff([]string{"connect " + idBarn + " url= token= once=false"}, m.heard()); diff != "" {
		t.Error(diff)
	}
}

// Steps that take no time are not waited for.
func TestConnectIsQuiet(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = pace{settle: time.Hour, believe: time.Hour}
	m.decided = func(string) { outgoing(m, idBarn, 2, "", "")() }
	stdout, _, code := act(t, w, map[string]func(){"its key is trusted": outgoing(m, idBarn, 7, "", "")}, "peers", "connect", "barn", "--once")
	if code != ExitOK || strings.Contains(stdout, "WAIT") || strings.Count(stdout, "INFO") != 7 || !strings.HasSuffix(stdout, "\nConnected to barn.\n") {
		t.Errorf("exit code %d, output:\n%s", code, stdout)
	}
	if told := m.heard(); !cmp.Equal(told, []string{"connect " + idBarn + " url= token= once=true"}) {
		t.Errorf("the agent heard %q", told)
	}
}

func TestConnectAsJSON(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = quick
	m.decided = func(string) { outgoing(m, idBarn, 7, "", "")() }
	stdout, stderr, code := act(t, w, nil, "peers", "connect", "barn", "-o", "json")
	if code != ExitOK || stderr != "" || strings.Contains(stdout, "INFO") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	shown, _, _ := w.run(t.Context(), "peers", "show", "barn", "-o", "json")
	if diff := cmp.Diff(shown, stdout); diff != "" {
		t.Errorf("connect does not print what show does:\n%s", diff)
	}
}

// What ends without being connected says why, and has an exit code of its own.
func TestConnectEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		turn func(m *memory, w *world, stop func()) func()
		args string
		code int
	}{
		{"refused", func(m *memory, _ *world, _ func()) func() {
			return outgoing(m, idBarn, 3, control.ReasonRefused, "The provider refused: it accepts nobody.")
		}, "", ExitRefused},
		{"ended", func(m *memory, _ *world, _ func()) func() {
			return outgoing(m, idBarn, 3, control.ReasonEndedByProvider, "The provider ended it: somebody there ran peers disconnect --incoming.")
		}, "", ExitRefused},
		{"blocked", func(m *memory, _ *world, _ func()) func() { return outgoing(m, idBarn, 3, control.ReasonBlocked, "") }, "", ExitRefused},
		{"disconnected", func(m *memory, _ *world, _ func()) func() {
			return func() { m.change(idBarn, func(p *control.Peer) { p.Outgoing = control.Direction{} }) }
		}, "", ExitError},
		{"forgotten", func(m *memory, _ *world, _ func()) func() {
			return func() {
				m.mu.Lock()
				m.peers = nil
				m.mu.Unlock()
				m.publish(idBarn)
			}
		}, "", ExitError},
		{"interrupted", func(_ *memory, _ *world, stop func()) func() { return stop }, "", ExitInterrupted},
		{"stopped", func(_ *memory, w *world, _ func()) func() { return w.stop }, "", ExitNotRunning},
		{"timeout", func(*memory, *world, func()) func() { return func() {} }, "--timeout 300ms", ExitTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := neighbours(t)
			w := withAgent(t, m)
			w.pace = quick
			m.decided = func(string) { outgoing(m, idBarn, 3, "", "")() }
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			stdout, stderr, code := actUntil(t, ctx, w, map[string]func(){"WAIT (remote) the PeeringRequest": tc.turn(m, w, stop)},
				append([]string{"peers", "connect", "barn"}, strings.Fields(tc.args)...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			// The end of the watch, or that nothing answers any more: either may be seen first.
			stderr = strings.Replace(stderr, "the agent is not running (nothing answers on $DIR/agent.sock)", "the watch ended: the agent is stopping", 1)
			golden(t, "connect-"+tc.name, stdout+"--- stderr\n"+stderr)
		})
	}
}

// A refusal from before is not taken for the answer to this attempt, unless it
// stays.
func TestConnectDoesNotBelieveOldNews(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = pace{settle: time.Millisecond, believe: time.Hour}
	outgoing(m, idBarn, 3, control.ReasonRefused, "an old refusal")()
	stdout, stderr, code := act(t, w, map[string]func(){"     an old refusal": outgoing(m, idBarn, 7, "", "")}, "peers", "connect", "barn")
	if code != ExitOK {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	w.pace = quick
	outgoing(m, idBarn, 3, control.ReasonRefused, "an old refusal")()
	_, stderr, code = act(t, w, nil, "peers", "connect", "barn")
	if code != ExitRefused || !strings.HasPrefix(stderr, "liqo-agent: barn is not connected: an old refusal\n") {
		t.Errorf("a refusal that stays: exit code %d, %s", code, stderr)
	}
	// A new refusal is believed at once.
	w.pace = pace{settle: time.Millisecond, believe: time.Hour}
	m.decided = func(string) { outgoing(m, idBarn, 3, control.ReasonRefused, "a new refusal")() }
	if _, stderr, code = act(t, w, nil, "peers", "connect", "barn"); code != ExitRefused || !strings.Contains(stderr, "a new refusal") {
		t.Errorf("a new refusal: exit code %d, %s", code, stderr)
	}
}

// TestUpstreamNames: what people type who know upstream Liqo.
func TestUpstreamNames(t *testing.T) {
	for _, tc := range []struct {
		args, heard, stderr string
		code                int
	}{
		{"peer barn --no-wait", "connect " + idBarn + " url= token= once=false", "", 0},
		{"peer 192.0.2.13 --no-wait", "connect " + idBarn + " url=https://192.0.2.13:6447 token= once=false", "liqo-agent: nobody is called 192.0.2.13; trying https://192.0.2.13:6447\n", 0},
		{"unpeer barn --no-wait", "disconnect " + idBarn + " incoming=false", "", 0},
		{"peer list", "", "liqo-agent: nobody is called \"list\"; did you mean \"peers list\"?\ntry: liqo-agent peers list --help\n", ExitUsage},
		{"peer", "", "liqo-agent: peer needs PEER, a URL, an address or --token\ntry: liqo-agent peer --help\n", ExitUsage},
	} {
		m := neighbours(t)
		_, stderr, code := withAgent(t, m).run(t.Context(), strings.Fields(tc.args)...)
		if heard := strings.Join(m.heard(), "\n"); heard != tc.heard || stderr != tc.stderr || code != tc.code {
			t.Errorf("%s: the agent heard %q, exit code %d, %s", tc.args, heard, code, stderr)
		}
	}
	a := New(Options{})
	for _, name := range []string{"peer", "unpeer"} {
		if cmd, _ := a.descend([]string{name}); cmd == nil || !cmd.Hidden {
			t.Errorf("%s is offered beside peers", name)
		}
	}
}

// Nothing but the peer is printed as JSON, also when it takes long.
func TestConnectAsJSONIsSilent(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = quick
	m.decided = func(string) { outgoing(m, idBarn, 3, control.ReasonAwaitingAcceptance, "x")() }
	stdout, stderr, code := w.run(t.Context(), "peers", "connect", "barn", "-o", "json", "--timeout", "200ms")
	if code != ExitTimeout || stdout != "" || !strings.HasPrefix(stderr, "liqo-agent: connecting to barn takes longer than 200ms") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// Who names a key gets that one or none, whatever the agent offers instead.
func TestNamedKeyIsNotExchanged(t *testing.T) {
	for _, args := range []string{"peers connect silo", "peers accept silo", "peers trust silo"} {
		m := neighbours(t)
		m.fail = control.NotTrusted(control.Shown{ID: idSilo, Name: "silo", Fingerprint: fpSilo, Code: "code"})
		calls := 0
		w := withAgent(t, &countingTrust{memory: m, calls: &calls})
		w.terminal, w.stdin = true, strings.NewReader("y\n")
		_, _, code := w.run(t.Context(), append(strings.Fields(args), "--yes", "--fingerprint", fpBarn)...)
		if code != ExitNotTrusted || calls != 1 {
			t.Errorf("%s: exit code %d after %d calls", args, code, calls)
		}
	}
}

// countingTrust is a Backend that counts the decisions about keys.
type countingTrust struct {
	*memory
	calls *int
}

func (c *countingTrust) Connect(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	*c.calls++
	return c.memory.Connect(ctx, opts)
}

func (c *countingTrust) Accept(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	*c.calls++
	return c.memory.Accept(ctx, id, fp, by)
}

func (c *countingTrust) Trust(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	*c.calls++
	return c.memory.Trust(ctx, id, fp, by)
}

func TestConnectNoWait(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	stdout, stderr, code := w.run(t.Context(), "peers", "connect", "barn", "--no-wait")
	if code != ExitOK || stdout != "Connecting to barn goes on in the background. See how far it is: liqo-agent info barn\n" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// A key that is not trusted is shown, and trusted by nothing but a clear yes.
func TestConnectConfirms(t *testing.T) {
	for _, tc := range []struct {
		name, typed string
		terminal    bool
		args        string
		code        int
		trusted     bool
	}{
		{"yes", "y\n", true, "", ExitOK, true},
		{"long yes", " YES \n", true, "", ExitOK, true},
		{"no", "n\n", true, "", ExitNotTrusted, false},
		{"enter", "\n", true, "", ExitNotTrusted, false},
		{"eof", "", true, "", ExitNotTrusted, false},
		{"yes and more", "yes please\n", true, "", ExitNotTrusted, false},
		{"no terminal", "y\n", false, "", ExitNotTrusted, false},
		{"--yes", "", false, "--yes", ExitOK, true},
		{"fingerprint", "", false, "--fingerprint " + fpSilo, ExitOK, true},
		{"fingerprint with colons", "", false, "--fingerprint SHA256:" + strings.Repeat("CD:", 31) + "CD", ExitOK, true},
		{"other fingerprint", "y\n", true, "--fingerprint " + fpBarn, ExitRefused, false},
		{"bad fingerprint", "y\n", true, "--fingerprint 12", ExitUsage, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := neighbours(t)
			w := withAgent(t, m)
			w.terminal, w.stdin = tc.terminal, strings.NewReader(tc.typed)
			stdout, stderr, code := w.run(t.Context(), append([]string{"peers", "connect", "silo", "--no-wait"}, strings.Fields(tc.args)...)...)
			p, err := m.Peer(t.Context(), idSilo)
			if err != nil {
				t.Fatal(err)
			}
			if trusted := p.Trust.Fingerprint == fpSilo; code != tc.code || trusted != tc.trusted || p.Outgoing.Wanted != tc.trusted {
				t.Errorf("exit code %d, trusted %t, connected %t; want %d, %t\n%s", code, trusted, p.Outgoing.Wanted, tc.code, tc.trusted, stderr)
			}
			switch tc.name {
			case "yes", "no", "no terminal", "other fingerprint", "bad fingerprint":
				golden(t, "connect-confirm-"+strings.ReplaceAll(tc.name, " ", "-"), stdout+"--- stderr\n"+stderr)
			}
		})
	}
}

// A key that changed is not accepted by connecting, whatever is said.
func TestConnectDoesNotReplaceKeys(t *testing.T) {
	for _, args := range []string{"peers connect barn", "peers connect barn --yes", "peers accept barn", "peers accept barn --yes"} {
		m := neighbours(t)
		m.change(idBarn, func(p *control.Peer) { p.Fingerprint = fpSilo })
		w := withAgent(t, m)
		w.terminal, w.stdin = true, strings.NewReader("y\n")
		_, stderr, code := w.run(t.Context(), strings.Fields(args)...)
		p, err := m.Peer(t.Context(), idBarn)
		if err != nil || code != ExitNotTrusted || p.Trust.Fingerprint != fpBarn || !strings.Contains(stderr, "barn shows another key than the trusted one") ||
			!strings.Contains(stderr, "liqo-agent peers trust "+idBarn+" --fingerprint "+fpSilo) {
			t.Errorf("%s: exit code %d, trusts %s, %v, %s", args, code, p.Trust.Fingerprint, err, stderr)
		}
	}
}

// Ctrl-C at the question changes nothing, and does not wait for an answer.
func TestConnectInterruptedAtTheQuestion(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	never := blocked{entered: stop, released: make(chan struct{})}
	defer close(never.released)
	w.terminal, w.stdin = true, never
	_, stderr, code := w.run(ctx, "peers", "connect", "silo")
	if code != ExitInterrupted || !strings.HasSuffix(stderr, "liqo-agent: interrupted; nothing was changed\n") || len(m.heard()) != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// blocked is a terminal at which nobody types; entered is called when somebody
// waits for it.
type blocked struct {
	entered  func()
	released chan struct{}
}

func (b blocked) Read([]byte) (int, error) {
	b.entered()
	<-b.released
	return 0, errors.New("released")
}

func TestConnectByURLAndToken(t *testing.T) {
	const token = "liqo1-0123456789"
	for _, tc := range []struct {
		name, typed string
		env         []string
		args        string
		code        int
		want        string
	}{
		{"url", "", nil, "https://barn.example:6447/", 0, "url=https://barn.example:6447 token= once=false"},
		{"bad url", "", nil, "http://barn.example", ExitUsage, ""},
		{"address", "", nil, "192.0.2.13", 0, "url=https://192.0.2.13:6447 token= once=false"},
		{"address and port", "", nil, "192.0.2.13:7000", 0, "url=https://192.0.2.13:7000 token= once=false"},
		{"IPv6 address", "", nil, "2001:db8::1", 0, "url=https://[2001:db8::1]:6447 token= once=false"},
		{"IPv6 address in brackets", "", nil, "[2001:db8::1]", 0, "url=https://[2001:db8::1]:6447 token= once=false"},
		{"IPv6 address and port", "", nil, "[2001:db8::1]:7000", 0, "url=https://[2001:db8::1]:7000 token= once=false"},
		{"host and port", "", nil, "barn.example:7000", 0, "url=https://barn.example:7000 token= once=false"},
		{"host", "", nil, "barn.example", ExitNotFound, ""},
		{"address and no port", "", nil, "192.0.2.13:x", ExitNotFound, ""},
		{"token", "", nil, "--token " + token, 0, "url= token=" + token + " once=false"},
		{"token and url", "", nil, "--token " + token + " https://barn.example", 0, "url=https://barn.example token=" + token + " once=false"},
		{"token and peer", "", nil, "barn --token " + token, 0, "url= token=" + token + " once=false"},
		{"token on stdin", "  " + token + "  \nmore\n", nil, "--token -", 0, "url= token=" + token + " once=false"},
		{"token on stdin without newline", token, nil, "--token -", 0, "url= token=" + token + " once=false"},
		{"no token on stdin", "", nil, "--token -", ExitUsage, ""},
		{"empty token on stdin", "\n", nil, "--token -", ExitUsage, ""},
		{"token in the environment", "", []string{tokenVariable + "=" + token}, "", 0, "url= token=" + token + " once=false"},
		{"nothing", "", nil, "", ExitUsage, ""},
		{"empty variable", "", []string{tokenVariable + "="}, "", ExitUsage, ""},
		{"unknown peer", "", nil, "cellar", ExitNotFound, ""},
		{"negative timeout", "", nil, "barn --timeout -1s", ExitUsage, ""},
	} {
		m := neighbours(t)
		w := withAgent(t, m)
		w.stdin, w.env = strings.NewReader(tc.typed), tc.env
		_, stderr, code := w.run(t.Context(), append([]string{"peers", "connect", "--no-wait"}, strings.Fields(tc.args)...)...)
		var want []string
		if tc.want != "" {
			want = []string{"connect " + idBarn + " " + tc.want}
		}
		if diff := cmp.Diff(want, m.heard()); code != tc.code || diff != "" {
			t.Errorf("%s: exit code %d, %s%s", tc.name, code, stderr, diff)
		}
		if strings.Contains(stderr, token) {
			t.Errorf("%s: the token is in the error", tc.name)
		}
	}
}

// Disconnecting is over when nothing is left, and not before; what is waited for is
// told.
func TestDisconnect(t *testing.T) {
	draining := "The pods that run there are leaving; then the request is taken back. 2 pods are left."
	for _, tc := range []struct {
		name, args, reason, message string
		end                         func(*control.Peer)
	}{
		{"disconnect", "peers disconnect barn", "Disconnected", "It is not to be joined.", func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-draining", "peers disconnect barn", control.ReasonDraining, draining, func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-no-api-server", "peers disconnect barn", control.ReasonUnknown, "The API server does not answer.", func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-incoming", "peers disconnect --incoming barn", "Ended", "alice had enough.", func(p *control.Peer) { p.Incoming.Ending = false }},
	} {
		m := neighbours(t)
		both := control.Direction{Wanted: true, Joined: true}
		m.change(idBarn, func(p *control.Peer) { p.Outgoing, p.Incoming = both, both })
		m.decided = func(string) {
			m.change(idBarn, func(p *control.Peer) {
				for _, d := range []*control.Direction{&p.Outgoing, &p.Incoming} {
					if !d.Wanted {
						d.Joined, d.Ending, d.Reason, d.Message, d.Steps = false, true, tc.reason, tc.message, allSteps(2)
					}
				}
			})
		}
		w := withAgent(t, m)
		w.pace = quick
		list := ""
		stdout, stderr, code := act(t, w, map[string]func(){"WAIT (local)": func() {
			list, _, _ = w.run(t.Context(), "peers", "list")
			m.change(idBarn, tc.end)
		}}, strings.Fields(tc.args)...)
		if code != ExitOK || stderr != "" {
			t.Errorf("%s: exit code %d, %s", tc.args, code, stderr)
		}
		golden(t, tc.name, stdout)
		want := " ending "
		if tc.reason == control.ReasonDraining {
			want = " Draining "
		}
		if !strings.Contains(list, want) {
			t.Errorf("%s: the list says\n%s", tc.name, list)
		}
		m.change(idBarn, func(p *control.Peer) { p.Outgoing, p.Incoming = both, both })
		stdout, stderr, code = act(t, w, nil, append(strings.Fields(tc.args), "--timeout", "200ms")...)
		if code != ExitTimeout {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
		golden(t, tc.name+"-timeout", stdout+"--- stderr\n"+stderr)
	}
}

// TestForgetWaits: a cluster is forgotten when our pods have left it, and not when
// somebody does not wait that long; whom nobody can tell anything is forgotten at once.
func TestForgetWaits(t *testing.T) {
	joined := control.Direction{Wanted: true, Joined: true}
	leaving := control.Direction{Ending: true, Reason: control.ReasonDraining, Message: "The pods that run there are leaving."}
	begin := func(t *testing.T, before, after control.Direction) (*memory, *world) {
		m := neighbours(t)
		m.change(idBarn, func(p *control.Peer) { p.Outgoing = before })
		m.decided = func(string) { m.change(idBarn, func(p *control.Peer) { p.Outgoing = after }) }
		w := withAgent(t, m)
		w.pace = quick
		return m, w
	}
	both := []string{"disconnect " + idBarn + " incoming=false", "forget " + idBarn}
	t.Run("pods leave", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		stdout, stderr, code := act(t, w, map[string]func(){"WAIT (local) our pods have left it": outgoing(m, idBarn, 0, "", "")}, "peers", "forget", "barn", "--yes")
		if code == ExitOK || len(m.heard()) != 1 { // it is wanted again
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		m, w = begin(t, joined, leaving)
		stdout, stderr, code = act(t, w, map[string]func(){"WAIT (local) our pods have left it": func() {
			m.change(idBarn, func(p *control.Peer) { p.Outgoing = control.Direction{} })
		}}, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both, m.heard()); code != ExitOK || diff != "" || !strings.HasSuffix(stdout, "\nbarn is forgotten.\n") {
			t.Errorf("exit code %d, %s%s%s", code, stdout, stderr, diff)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, stderr, code := actUntil(t, ctx, w, map[string]func(){"WAIT (local)": stop}, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both[:1], m.heard()); code != ExitInterrupted || diff != "" || !strings.Contains(stderr, "which is not forgotten yet, goes on in the background") {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
	t.Run("the API server goes away", func(t *testing.T) {
		m, w := begin(t, joined, control.Direction{Ending: true, Reason: control.ReasonUnknown})
		_, stderr, code := act(t, w, nil, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both, m.heard()); code != ExitOK || diff != "" {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
	t.Run("it is away", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		m.change(idBarn, func(p *control.Peer) { p.Phase = "Unreachable" })
		_, stderr, code := act(t, w, nil, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both[1:], m.heard()); code != ExitOK || diff != "" {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
}

// Whatever the peer does while somebody waits, the output has no step twice in a
// row and ends.
func TestConnectTellsAgainWhatIsUndone(t *testing.T) {
	m := neighbours(t)
	w := withAgent(t, m)
	w.pace = quick
	m.decided = func(string) { outgoing(m, idBarn, 4, "", "")() }
	stdout, _, code := act(t, w, map[string]func(){
		"WAIT (remote) the PeeringRequest is accepted": outgoing(m, idBarn, 1, "Unreachable", "barn does not answer"),
		"     barn does not":                           outgoing(m, idBarn, 7, "", ""),
	}, "peers", "connect", "barn")
	if code != ExitOK || strings.Count(stdout, "INFO (remote) the cluster answers") != 1 || strings.Count(stdout, "INFO (remote) this cluster is let in") != 2 {
		t.Errorf("exit code %d, output:\n%s", code, stdout)
	}
}

func ExampleReport() {
	var b strings.Builder
	code := Report(&b, &outcome{message: "it takes long", try: "wait", code: ExitTimeout})
	fmt.Println(code, b.String())
	// Output:
	// 7 liqo-agent: it takes long
	// try: wait
}
