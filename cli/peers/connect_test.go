package peers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/peers"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/peer"
)

// Each step is told when it is done, and what is waited for when that takes a
// while, with what a person can do.
func TestConnectTellsTheSteps(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = clitest.Quick
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 3, "", "")() }
	stdout, stderr, code := clitest.Act(t, w, map[string]func(){
		"WAIT (remote) the PeeringRequest exists": clitest.Outgoing(m, clitest.Barn, 4, control.ReasonAwaitingAcceptance, "The provider has not decided yet."),
		"on barn, run":         clitest.Outgoing(m, clitest.Barn, 5, "", ""),
		"WAIT (local) its Adv": clitest.Outgoing(m, clitest.Barn, 7, "", ""),
	}, "peers", "connect", "barn")
	if code != command.ExitOK || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	clitest.Golden(t, "connect-steps", stdout)
	if diff := cmp.Diff([]string{"connect " + clitest.Barn + " url= token= once=false"}, m.Heard()); diff != "" {
		t.Error(diff)
	}
}

// Steps that take no time are not waited for.
func TestConnectIsQuiet(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = command.Pace{Settle: time.Hour, Believe: time.Hour}
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 2, "", "")() }
	stdout, _, code := clitest.Act(t, w, map[string]func(){"its key is trusted": clitest.Outgoing(m, clitest.Barn, 7, "", "")}, "peers", "connect", "barn", "--once")
	if code != command.ExitOK || strings.Contains(stdout, "WAIT") || strings.Count(stdout, "INFO") != 7 || !strings.HasSuffix(stdout, "\nConnected to barn.\n") {
		t.Errorf("exit code %d, output:\n%s", code, stdout)
	}
	if told := m.Heard(); !cmp.Equal(told, []string{"connect " + clitest.Barn + " url= token= once=true"}) {
		t.Errorf("the agent heard %q", told)
	}
}

// Steps that go on when the cluster is connected are told as long as they come, and nobody waits for the rest.
func TestConnectTellsWhatGoesOn(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	further := func(done int) func() {
		return func() {
			m.Change(clitest.Barn, func(p *control.Peer) {
				p.Outgoing = control.Direction{Wanted: true, Joined: true, Steps: append(clitest.Steps(7),
					control.Step{Name: "gateway-client", Text: "(local) Gateway client correctly set up", Done: done > 0}, control.Step{Name: "connection", Text: "(local) Connection is established", Done: done > 1})}
			})
		}
	}
	m.Decided = func(string) { further(0)() }
	// The next step comes within the time for which it is believed that one comes, also on a busy machine.
	short := command.Pace{Settle: time.Millisecond, Believe: 10 * time.Second}
	for _, pace := range []command.Pace{{Settle: time.Hour, Believe: time.Hour}, short} {
		w.Pace = pace
		turns := map[string]func(){"its Advertisement is accepted": further(1)}
		if pace != short {
			turns["Gateway client"] = further(2)
		}
		stdout, stderr, code := clitest.Act(t, w, turns, "peers", "connect", "barn", "--once")
		if code != command.ExitOK || !strings.Contains(stdout, "INFO (local) Gateway client correctly set up\n") || !strings.HasSuffix(stdout, "\nConnected to barn.\n") ||
			strings.Contains(stdout, "INFO (local) Connection is established") == (pace == short) {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
	}
}

func TestConnectAsJSON(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = clitest.Quick
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 7, "", "")() }
	stdout, stderr, code := clitest.Act(t, w, nil, "peers", "connect", "barn", "-o", "json")
	if code != command.ExitOK || stderr != "" || strings.Contains(stdout, "INFO") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	shown, _, _ := w.Run(t.Context(), "peers", "show", "barn", "-o", "json")
	if diff := cmp.Diff(shown, stdout); diff != "" {
		t.Errorf("connect does not print what show does:\n%s", diff)
	}
}

// What ends without being connected says why, and has an exit code of its own.
func TestConnectEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		turn func(m *clitest.Memory, w *clitest.World, stop func()) func()
		args string
		code int
	}{
		{"refused", func(m *clitest.Memory, _ *clitest.World, _ func()) func() {
			return clitest.Outgoing(m, clitest.Barn, 3, control.ReasonRefused, "The provider refused: it accepts nobody.")
		}, "", command.ExitRefused},
		{"ended", func(m *clitest.Memory, _ *clitest.World, _ func()) func() {
			return clitest.Outgoing(m, clitest.Barn, 3, control.ReasonEndedByProvider, "The provider ended the peering: somebody there ran peers disconnect --incoming.")
		}, "", command.ExitRefused},
		{"blocked", func(m *clitest.Memory, _ *clitest.World, _ func()) func() {
			return clitest.Outgoing(m, clitest.Barn, 3, control.ReasonBlocked, "")
		}, "", command.ExitRefused},
		{"disconnected", func(m *clitest.Memory, _ *clitest.World, _ func()) func() {
			return func() {
				m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing = control.Direction{Since: clitest.Now} }) // not as it was before
			}
		}, "", command.ExitError},
		{"forgotten", func(m *clitest.Memory, _ *clitest.World, _ func()) func() {
			return func() {
				m.Mu.Lock()
				m.Has.Peers = nil
				m.Mu.Unlock()
				m.Publish(clitest.Barn)
			}
		}, "", command.ExitError},
		{"interrupted", func(_ *clitest.Memory, _ *clitest.World, stop func()) func() { return stop }, "", command.ExitInterrupted},
		{"stopped", func(_ *clitest.Memory, w *clitest.World, _ func()) func() { return w.Stop }, "", command.ExitNotRunning},
		{"timeout", func(*clitest.Memory, *clitest.World, func()) func() { return func() {} }, "--timeout 3s", command.ExitTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := clitest.Neighbours(t)
			w := clitest.WithAgent(t, cli.New, m)
			w.Pace = clitest.Quick
			m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 3, "", "")() }
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			stdout, stderr, code := clitest.ActUntil(t, ctx, w, map[string]func(){"WAIT (remote) the PeeringRequest": tc.turn(m, w, stop)},
				append([]string{"peers", "connect", "barn"}, strings.Fields(tc.args)...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			// The end of the watch, that it is not begun any more, or that nothing answers: each may be seen first.
			for _, other := range []string{"the agent is stopping", "the agent is not running (nothing answers on $DIR/agent.sock)"} {
				stderr = strings.Replace(stderr, "barn: "+other, "barn: the watch ended: the agent is stopping", 1)
			}
			clitest.Golden(t, "connect-"+tc.name, stdout+"--- stderr\n"+stderr)
		})
	}
}

// A refusal from before is not taken for the answer to this attempt, unless it
// stays.
func TestConnectDoesNotBelieveOldNews(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = command.Pace{Settle: time.Millisecond, Believe: time.Hour}
	clitest.Outgoing(m, clitest.Barn, 3, control.ReasonRefused, "an old refusal")()
	stdout, stderr, code := clitest.Act(t, w, map[string]func(){"     an old refusal": clitest.Outgoing(m, clitest.Barn, 7, "", "")}, "peers", "connect", "barn")
	if code != command.ExitOK {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	w.Pace = clitest.Quick
	clitest.Outgoing(m, clitest.Barn, 3, control.ReasonRefused, "an old refusal")()
	_, stderr, code = clitest.Act(t, w, nil, "peers", "connect", "barn")
	if code != command.ExitRefused || !strings.HasPrefix(stderr, "liqo-agent: barn is not connected: an old refusal\n") {
		t.Errorf("a refusal that stays: exit code %d, %s", code, stderr)
	}
	// A new refusal is believed at once.
	w.Pace = command.Pace{Settle: time.Millisecond, Believe: time.Hour}
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 3, control.ReasonRefused, "a new refusal")() }
	if _, stderr, code = clitest.Act(t, w, nil, "peers", "connect", "barn"); code != command.ExitRefused || !strings.Contains(stderr, "a new refusal") {
		t.Errorf("a new refusal: exit code %d, %s", code, stderr)
	}
}

// TestUpstreamNames: what people type who know upstream Liqo.
func TestUpstreamNames(t *testing.T) {
	for _, tc := range []struct {
		args, heard, stderr string
		code                int
	}{
		{"peer barn --no-wait", "connect " + clitest.Barn + " url= token= once=false", "", 0},
		{"peer 192.0.2.13 --no-wait", "connect " + clitest.Barn + " url=https://192.0.2.13:6447 token= once=false", "liqo-agent: no cluster is called 192.0.2.13; trying https://192.0.2.13:6447\n", 0},
		{"unpeer barn --no-wait", "disconnect " + clitest.Barn + " incoming=false", "", 0},
		{"peer list", "", "liqo-agent: no cluster is called \"list\"; did you mean \"peers list\"?\ntry: liqo-agent peers list --help\n", command.ExitUsage},
		{"peer", "", "liqo-agent: peer needs PEER, a URL, an address or --token\ntry: liqo-agent peer --help\n", command.ExitUsage},
	} {
		m := clitest.Neighbours(t)
		_, stderr, code := clitest.WithAgent(t, cli.New, m).Run(t.Context(), strings.Fields(tc.args)...)
		if heard := strings.Join(m.Heard(), "\n"); heard != tc.heard || stderr != tc.stderr || code != tc.code {
			t.Errorf("%s: the agent heard %q, exit code %d, %s", tc.args, heard, code, stderr)
		}
	}
	for _, c := range []command.Command{peers.ConnectCommand(), peers.DisconnectCommand()} {
		if !c.Hidden {
			t.Errorf("%s is offered beside peers", c.Name)
		}
	}
}

// Nothing but the peer is printed as JSON, also when it takes long.
func TestConnectAsJSONIsSilent(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = clitest.Quick
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 3, control.ReasonAwaitingAcceptance, "x")() }
	stdout, stderr, code := w.Run(t.Context(), "peers", "connect", "barn", "-o", "json", "--timeout", "200ms")
	if code != command.ExitTimeout || stdout != "" || !strings.HasPrefix(stderr, "liqo-agent: connecting to barn takes longer than 200ms") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// Who names a key gets that one or none, whatever the agent offers instead.
func TestNamedKeyIsNotExchanged(t *testing.T) {
	for _, args := range []string{"peers connect silo", "peers accept silo", "peers trust silo"} {
		m := clitest.Neighbours(t)
		m.Fail = control.NotTrusted(control.Shown{ID: clitest.Silo, Name: "silo", Fingerprint: clitest.SiloKey, Code: "code"})
		calls := 0
		w := clitest.WithAgent(t, cli.New, &countingTrust{Memory: m, calls: &calls})
		w.Terminal, w.Stdin = true, strings.NewReader("y\n")
		_, _, code := w.Run(t.Context(), append(strings.Fields(args), "--yes", "--fingerprint", clitest.BarnKey)...)
		if code != command.ExitNotTrusted || calls != 1 {
			t.Errorf("%s: exit code %d after %d calls", args, code, calls)
		}
	}
}

// countingTrust is a Backend that counts the decisions about keys.
type countingTrust struct {
	*clitest.Memory
	calls *int
}

func (c *countingTrust) Connect(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	*c.calls++
	return c.Memory.Connect(ctx, opts)
}

func (c *countingTrust) Accept(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	*c.calls++
	return c.Memory.Accept(ctx, id, fp, by)
}

func (c *countingTrust) Trust(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	*c.calls++
	return c.Memory.Trust(ctx, id, fp, by)
}

func TestConnectNoWait(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	stdout, stderr, code := w.Run(t.Context(), "peers", "connect", "barn", "--no-wait")
	if code != command.ExitOK || stdout != "Connecting to barn in the background. Progress: liqo-agent info barn\n" {
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
		{"yes", "y\n", true, "", command.ExitOK, true},
		{"long yes", " YES \n", true, "", command.ExitOK, true},
		{"no", "n\n", true, "", command.ExitNotTrusted, false},
		{"enter", "\n", true, "", command.ExitNotTrusted, false},
		{"eof", "", true, "", command.ExitNotTrusted, false},
		{"yes and more", "yes please\n", true, "", command.ExitNotTrusted, false},
		{"no terminal", "y\n", false, "", command.ExitNotTrusted, false},
		{"--yes", "", false, "--yes", command.ExitOK, true},
		{"fingerprint", "", false, "--fingerprint " + clitest.SiloKey, command.ExitOK, true},
		{"fingerprint with colons", "", false, "--fingerprint SHA256:" + strings.Repeat("CD:", 31) + "CD", command.ExitOK, true},
		{"other fingerprint", "y\n", true, "--fingerprint " + clitest.BarnKey, command.ExitRefused, false},
		{"bad fingerprint", "y\n", true, "--fingerprint 12", command.ExitUsage, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := clitest.Neighbours(t)
			w := clitest.WithAgent(t, cli.New, m)
			w.Terminal, w.Stdin = tc.terminal, strings.NewReader(tc.typed)
			stdout, stderr, code := w.Run(t.Context(), append([]string{"peers", "connect", "silo", "--no-wait"}, strings.Fields(tc.args)...)...)
			p, err := m.Peer(t.Context(), clitest.Silo)
			if err != nil {
				t.Fatal(err)
			}
			if trusted := p.Trust.Fingerprint == clitest.SiloKey; code != tc.code || trusted != tc.trusted || p.Outgoing.Wanted != tc.trusted {
				t.Errorf("exit code %d, trusted %t, connected %t; want %d, %t\n%s", code, trusted, p.Outgoing.Wanted, tc.code, tc.trusted, stderr)
			}
			switch tc.name {
			case "yes", "no", "no terminal", "other fingerprint", "bad fingerprint":
				clitest.Golden(t, "connect-confirm-"+strings.ReplaceAll(tc.name, " ", "-"), stdout+"--- stderr\n"+stderr)
			}
		})
	}
}

// A key that changed is not accepted by connecting, whatever is said.
func TestConnectDoesNotReplaceKeys(t *testing.T) {
	for _, args := range []string{"peers connect barn", "peers connect barn --yes", "peers accept barn", "peers accept barn --yes"} {
		m := clitest.Neighbours(t)
		m.Change(clitest.Barn, func(p *control.Peer) { p.Fingerprint = clitest.SiloKey })
		w := clitest.WithAgent(t, cli.New, m)
		w.Terminal, w.Stdin = true, strings.NewReader("y\n")
		_, stderr, code := w.Run(t.Context(), strings.Fields(args)...)
		p, err := m.Peer(t.Context(), clitest.Barn)
		if err != nil || code != command.ExitNotTrusted || p.Trust.Fingerprint != clitest.BarnKey || !strings.Contains(stderr, "barn shows another key than the trusted one") ||
			!strings.Contains(stderr, "liqo-agent peers trust "+clitest.Barn+" --fingerprint "+clitest.SiloKey) {
			t.Errorf("%s: exit code %d, trusts %s, %v, %s", args, code, p.Trust.Fingerprint, err, stderr)
		}
	}
}

// Ctrl-C at the question changes nothing, and does not wait for an answer.
func TestConnectInterruptedAtTheQuestion(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	ctx, stop := context.WithTimeout(t.Context(), clitest.Patience)
	defer stop()
	never := blocked{entered: stop, released: make(chan struct{})}
	defer close(never.released)
	w.Terminal, w.Stdin = true, never
	_, stderr, code := w.Run(ctx, "peers", "connect", "silo")
	if code != command.ExitInterrupted || !strings.HasSuffix(stderr, "liqo-agent: interrupted; nothing was changed\n") || len(m.Heard()) != 0 {
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
		{"bad url", "", nil, "http://barn.example", command.ExitUsage, ""},
		{"address", "", nil, "192.0.2.13", 0, "url=https://192.0.2.13:6447 token= once=false"},
		{"address and port", "", nil, "192.0.2.13:7000", 0, "url=https://192.0.2.13:7000 token= once=false"},
		{"IPv6 address", "", nil, "2001:db8::1", 0, "url=https://[2001:db8::1]:6447 token= once=false"},
		{"IPv6 address in brackets", "", nil, "[2001:db8::1]", 0, "url=https://[2001:db8::1]:6447 token= once=false"},
		{"IPv6 address and port", "", nil, "[2001:db8::1]:7000", 0, "url=https://[2001:db8::1]:7000 token= once=false"},
		{"host and port", "", nil, "barn.example:7000", 0, "url=https://barn.example:7000 token= once=false"},
		{"host", "", nil, "barn.example", command.ExitNotFound, ""},
		{"address and no port", "", nil, "192.0.2.13:x", command.ExitNotFound, ""},
		{"token", "", nil, "--token " + token, 0, "url= token=" + token + " once=false"},
		{"token and url", "", nil, "--token " + token + " https://barn.example", 0, "url=https://barn.example token=" + token + " once=false"},
		{"token and peer", "", nil, "barn --token " + token, 0, "url= token=" + token + " once=false"},
		{"token on stdin", "  " + token + "  \nmore\n", nil, "--token -", 0, "url= token=" + token + " once=false"},
		{"token on stdin without newline", token, nil, "--token -", 0, "url= token=" + token + " once=false"},
		{"no token on stdin", "", nil, "--token -", command.ExitUsage, ""},
		{"empty token on stdin", "\n", nil, "--token -", command.ExitUsage, ""},
		{"token in the environment", "", []string{peers.TokenVariable + "=" + token}, "", 0, "url= token=" + token + " once=false"},
		{"nothing", "", nil, "", command.ExitUsage, ""},
		{"empty variable", "", []string{peers.TokenVariable + "="}, "", command.ExitUsage, ""},
		{"unknown peer", "", nil, "cellar", command.ExitNotFound, ""},
		{"negative timeout", "", nil, "barn --timeout -1s", command.ExitUsage, ""},
	} {
		m := clitest.Neighbours(t)
		w := clitest.WithAgent(t, cli.New, m)
		w.Stdin, w.Env = strings.NewReader(tc.typed), tc.env
		_, stderr, code := w.Run(t.Context(), append([]string{"peers", "connect", "--no-wait"}, strings.Fields(tc.args)...)...)
		var want []string
		if tc.want != "" {
			want = []string{"connect " + clitest.Barn + " " + tc.want}
		}
		if diff := cmp.Diff(want, m.Heard()); code != tc.code || diff != "" {
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
	draining := "The pods that run there are leaving; then the request is withdrawn. 2 pods are left."
	for _, tc := range []struct {
		name, args, reason, message string
		end                         func(*control.Peer)
	}{
		{"disconnect", "peers disconnect barn", "Disconnected", "It is not to be joined.", func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-draining", "peers disconnect barn", control.ReasonDraining, draining, func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-no-api-server", "peers disconnect barn", control.ReasonUnknown, "The API server does not answer.", func(p *control.Peer) { p.Outgoing.Ending = false }},
		{"disconnect-incoming", "peers disconnect --incoming barn", "Ended", "alice had enough.", func(p *control.Peer) { p.Incoming.Ending = false }},
	} {
		m := clitest.Neighbours(t)
		both := control.Direction{Wanted: true, Joined: true}
		m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing, p.Incoming = both, both })
		m.Decided = func(string) {
			m.Change(clitest.Barn, func(p *control.Peer) {
				for _, d := range []*control.Direction{&p.Outgoing, &p.Incoming} {
					if !d.Wanted {
						d.Joined, d.Ending, d.Reason, d.Message, d.Steps = false, true, tc.reason, tc.message, clitest.Steps(2)
					}
				}
			})
		}
		w := clitest.WithAgent(t, cli.New, m)
		w.Pace = clitest.Quick
		list := ""
		stdout, stderr, code := clitest.Act(t, w, map[string]func(){"WAIT (local)": func() {
			list, _, _ = w.Run(t.Context(), "peers", "list")
			m.Change(clitest.Barn, tc.end)
		}}, strings.Fields(tc.args)...)
		if code != command.ExitOK || stderr != "" {
			t.Errorf("%s: exit code %d, %s", tc.args, code, stderr)
		}
		clitest.Golden(t, tc.name, stdout)
		want := " ending "
		if tc.reason == control.ReasonDraining {
			want = " Draining "
		}
		if !strings.Contains(list, want) {
			t.Errorf("%s: the list says\n%s", tc.name, list)
		}
		m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing, p.Incoming = both, both })
		stdout, stderr, code = clitest.Act(t, w, nil, append(strings.Fields(tc.args), "--timeout", "3s")...)
		if code != command.ExitTimeout {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
		clitest.Golden(t, tc.name+"-timeout", stdout+"--- stderr\n"+stderr)
	}
}

// TestForgetWaits: a cluster is forgotten when our pods have left it, and not when
// somebody does not wait that long; whom nobody can tell anything is forgotten at once.
func TestForgetWaits(t *testing.T) {
	joined := control.Direction{Wanted: true, Joined: true}
	leaving := control.Direction{Ending: true, Reason: control.ReasonDraining, Message: "The pods that run there are leaving."}
	begin := func(t *testing.T, before, after control.Direction) (*clitest.Memory, *clitest.World) {
		m := clitest.Neighbours(t)
		m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing = before })
		m.Decided = func(string) { m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing = after }) }
		w := clitest.WithAgent(t, cli.New, m)
		w.Pace = clitest.Quick
		return m, w
	}
	both := []string{"disconnect " + clitest.Barn + " incoming=false", "forget " + clitest.Barn}
	t.Run("pods leave", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		stdout, stderr, code := clitest.Act(t, w, map[string]func(){"WAIT (local) our pods have left": clitest.Outgoing(m, clitest.Barn, 0, "", "")}, "peers", "forget", "barn", "--yes")
		if code == command.ExitOK || len(m.Heard()) != 1 { // it is wanted again
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		m, w = begin(t, joined, leaving)
		stdout, stderr, code = clitest.Act(t, w, map[string]func(){"WAIT (local) our pods have left": func() {
			m.Change(clitest.Barn, func(p *control.Peer) { p.Outgoing = control.Direction{} })
		}}, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both, m.Heard()); code != command.ExitOK || diff != "" || !strings.HasSuffix(stdout, "\nbarn is forgotten.\n") {
			t.Errorf("exit code %d, %s%s%s", code, stdout, stderr, diff)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, stderr, code := clitest.ActUntil(t, ctx, w, map[string]func(){"WAIT (local)": stop}, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both[:1], m.Heard()); code != command.ExitInterrupted || diff != "" || !strings.Contains(stderr, "(not forgotten yet) continues in the background") {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
	t.Run("the API server goes away", func(t *testing.T) {
		m, w := begin(t, joined, control.Direction{Ending: true, Reason: control.ReasonUnknown})
		_, stderr, code := clitest.Act(t, w, nil, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both, m.Heard()); code != command.ExitOK || diff != "" {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
	t.Run("it is away", func(t *testing.T) {
		m, w := begin(t, joined, leaving)
		m.Change(clitest.Barn, func(p *control.Peer) { p.Phase = "Unreachable" })
		_, stderr, code := clitest.Act(t, w, nil, "peers", "forget", "barn", "--yes")
		if diff := cmp.Diff(both[1:], m.Heard()); code != command.ExitOK || diff != "" {
			t.Errorf("exit code %d, %s%s", code, stderr, diff)
		}
	})
}

// Whatever the peer does while somebody waits, the output has no step twice in a
// row and ends.
func TestConnectTellsAgainWhatIsUndone(t *testing.T) {
	m := clitest.Neighbours(t)
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = clitest.Quick
	m.Decided = func(string) { clitest.Outgoing(m, clitest.Barn, 4, "", "")() }
	stdout, _, code := clitest.Act(t, w, map[string]func(){
		"WAIT (remote) the PeeringRequest is accepted": clitest.Outgoing(m, clitest.Barn, 1, "Unreachable", "barn does not answer"),
		"     barn does not":                           clitest.Outgoing(m, clitest.Barn, 7, "", ""),
	}, "peers", "connect", "barn")
	if code != command.ExitOK || strings.Count(stdout, "INFO (remote) the cluster answers") != 1 || strings.Count(stdout, "INFO (remote) this cluster has access") != 2 {
		t.Errorf("exit code %d, output:\n%s", code, stdout)
	}
}
