package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const idShed = "9c1b7c1e-5f0a-4f7e-8d0a-2b1f0c3d4e5f"

var fpBarn = peer.FingerprintOf([]byte("barn"))

// me is what the server is to find out about this process.
func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return "user " + u.Username + " (command line)"
}

func ptr[T any](v T) *T { return &v }

// Every decision reaches the backend, about the right peer, with the name of who
// made it.
func TestDecisions(t *testing.T) {
	m := &memory{peers: twoPeers(), made: []control.Invite{{ID: "00ff", State: control.InviteOpen}, {ID: "00fe", State: control.InviteUsed}},
		requests: []control.Request{{ID: idShed, Name: "shed", Kind: control.KindAsk, State: "Pending", Fingerprint: fpBarn.String(), Code: "code", Address: "192.0.2.9:1"}}}
	_, c := serve(t, m)
	ctx, self := t.Context(), me(t)
	only := func(_ any, err error) error { return err }
	fp := fpBarn.String()
	for _, tc := range []struct {
		name string
		call func() error
		want string
	}{
		{"connect", func() error { return only(c.Connect(ctx, "barn", control.ConnectOptions{})) }, "connect " + idBarn},
		{"connect an asker", func() error { return only(c.Connect(ctx, "shed", control.ConnectOptions{})) }, "connect " + idShed},
		{"disconnect", func() error { return only(c.Disconnect(ctx, "barn", false)) }, "disconnect " + idBarn + " false " + self},
		{"disconnect incoming", func() error { return only(c.Disconnect(ctx, "barn", true)) }, "disconnect " + idBarn + " true " + self},
		{"accept", func() error { return only(c.Accept(ctx, "silo", peer.Fingerprint{})) }, "accept " + idSilo + "  " + self},
		{"accept an asker", func() error { return only(c.Accept(ctx, "9c1b", fpBarn)) }, "accept " + idShed + " " + fp + " " + self},
		{"reject", func() error { return only(c.Reject(ctx, "shed")) }, "reject " + idShed + " " + self},
		{"block", func() error { return only(c.Block(ctx, "shed")) }, "block " + idShed + " " + self},
		{"unblock", func() error { return only(c.Unblock(ctx, "barn")) }, "unblock " + idBarn + " " + self},
		{"trust", func() error { return only(c.Trust(ctx, "barn", fpBarn)) }, "trust " + idBarn + " " + fp + " " + self},
		{"distrust", func() error { return only(c.Distrust(ctx, "barn")) }, "distrust " + idBarn + " " + self},
		{"set nothing", func() error { return only(c.Set(ctx, "barn", control.PreferencesPatch{})) }, "set " + idBarn + " connect=nil accept=nil note=nil url=nil " + self},
		{"set all", func() error {
			return only(c.Set(ctx, "barn", control.PreferencesPatch{AutoConnect: ptr(control.Yes), AutoAccept: ptr(control.Undecided), Note: ptr(""), URL: ptr("https://Barn.example:6447/")}))
		}, "set " + idBarn + ` connect="yes" accept="undecided" note="" url="https://Barn.example:6447" ` + self},
		{"set amounts", func() error {
			return only(c.Set(ctx, "barn", control.PreferencesPatch{Asks: control.Asks{CPU: ptr("0.5"), Memory: ptr("")}}))
		}, "set " + idBarn + ` connect=nil accept=nil note=nil url=nil cpu="500m" memory="" ` + self},
		{"invite", func() error {
			return only(c.Invite(ctx, control.InviteOptions{TTL: time.Hour, Note: "for Jo", URL: "https://192.0.2.1:6447", By: "forged"}))
		}, "invite {TTL:1h0m0s Note:for Jo URL:https://192.0.2.1:6447 By:" + self + "}"},
		{"revoke", func() error { return c.RevokeInvite(ctx, "00ff") }, "revoke 00ff " + self},
		{"revoke by prefix", func() error { return c.RevokeInvite(ctx, "0") }, "revoke 00ff " + self},
		{"key", func() error { return only(c.Key(ctx)) }, "key"},
		{"rotate", func() error { return only(c.RotateKey(ctx)) }, "rotate " + self},
		{"csr", func() error { return only(c.CSR(ctx, []string{"a.example", "b.example"})) }, "csr [a.example b.example]"},
		{"forget", func() error { return only(c.Forget(ctx, "silo")) }, "forget " + idSilo + " " + self},
	} {
		err := tc.call()
		if heard := m.heard(); err != nil || len(heard) != 1 || heard[0] != tc.want {
			t.Errorf("%s: the backend heard %q, %v; want %q", tc.name, heard, err, tc.want)
		}
	}
}

func TestConnectOptionsArrive(t *testing.T) {
	m := &memory{peers: twoPeers()}
	_, c := serve(t, m)
	p, err := c.Connect(t.Context(), "", control.ConnectOptions{ID: "ignored", URL: "https://192.0.2.7:6447/", Token: "liqo1-x", Fingerprint: fpBarn, Once: true, By: "forged",
		Asks: control.Asks{CPU: ptr("2000m"), Memory: ptr("4096Mi")}})
	if err != nil || p.ID != idSilo || p.Name != "silo" {
		t.Errorf("Connect = %+v, %v", p, err)
	}
	want := control.ConnectOptions{URL: "https://192.0.2.7:6447", Token: "liqo1-x", Fingerprint: fpBarn, Once: true, By: me(t),
		Asks: control.Asks{CPU: ptr("2"), Memory: ptr("4Gi")}}
	if diff := cmp.Diff(want, m.connects); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersAfterDecisions(t *testing.T) {
	m := &memory{peers: twoPeers(), requests: []control.Request{{ID: idShed, Name: "shed"}}}
	s, c := serve(t, m)
	ctx := t.Context()
	m.change(func() {
		m.peers[1].Outgoing = control.Direction{Wanted: true, Reason: control.ReasonAwaitingAcceptance}
	})
	if p, err := c.Connect(ctx, "barn", control.ConnectOptions{}); err != nil || p.Outgoing.Reason != control.ReasonAwaitingAcceptance || p.Outgoing.Steps == nil {
		t.Errorf("after connect: %+v, %v", p, err)
	}
	// One that is among no peers yet, or no longer.
	if p, err := c.Accept(ctx, "shed", fpBarn); err != nil || p.ID != idShed || p.Request == nil || p.Preferences.AutoAccept != control.Undecided {
		t.Errorf("after accept: %+v, %v", p, err)
	}
	if p, err := c.Forget(ctx, "barn"); err != nil || p.ID != idBarn {
		t.Errorf("after forget: %+v, %v", p, err)
	}
	if asked, err := c.Requests(ctx); err != nil || len(asked) != 1 || asked[0].Name != "shed" {
		t.Errorf("Requests = %+v, %v", asked, err)
	}
	if csr, err := c.CSR(ctx, []string{"a"}); err != nil || csr != "CSR" {
		t.Errorf("CSR = %q, %v", csr, err)
	}
	if i, err := c.Invite(ctx, control.InviteOptions{TTL: time.Minute, Note: "n"}); err != nil || i.Token != "liqo1-secret" || i.Note != "n" {
		t.Errorf("Invite = %+v, %v", i, err)
	}
	if k, err := c.Key(ctx); err != nil || k.Fingerprint != "f0" || k.Successions != 1 {
		t.Errorf("Key = %+v, %v", k, err)
	}
	for _, path := range []string{"/v1/requests", "/v1/invites"} {
		m.change(func() { m.requests, m.made = nil, nil })
		if status, body := raw(t, s, "GET", path, ""); status != 200 || strings.TrimSpace(body) != "[]" {
			t.Errorf("%s of none: %d %s", path, status, body)
		}
	}
}

func TestDecisionErrors(t *testing.T) {
	m := &memory{peers: twoPeers()}
	_, c := serve(t, m)
	shown := control.Shown{ID: idBarn, Name: "barn", Address: "192.0.2.7:6447", Fingerprint: fpBarn.String(), Code: "aaaaa-bbbbb"}
	changed := shown
	changed.Pinned = strings.Repeat("12", 32)
	for _, tc := range []struct {
		name string
		err  error
		kind error
		text string
		try  string
	}{
		{"not trusted", control.NotTrusted(shown), control.ErrNotTrusted, "the key of barn is not trusted yet; its verification code is aaaaa-bbbbb",
			"compare the code with what liqo-agent shows there, then repeat the command with --fingerprint " + fpBarn.String()},
		{"other key", control.NotTrusted(changed), control.ErrNotTrusted, "barn shows another key than the trusted one; the verification code of the new key is aaaaa-bbbbb",
			"find out why its key changed; if the change is intended, compare the code with what liqo-agent shows there, then: liqo-agent peers trust " + idBarn + " --fingerprint " + fpBarn.String()},
		{"refused", &control.Error{Kind: control.ErrRefused, Message: "barn says no"}, control.ErrRefused, "barn says no", ""},
		{"unavailable", fmt.Errorf("ask https://x: %w", control.ErrUnavailable), control.ErrUnavailable, "ask https://x: not available now", ""},
	} {
		m.change(func() { m.fail = nil })
		// The failure is that of the decision, not of finding the peer.
		failing := &decisionFails{memory: m, err: tc.err}
		_, fc := serve(t, failing)
		_, err := fc.Connect(t.Context(), "barn", control.ConnectOptions{})
		var e *control.Error
		if !errors.Is(err, tc.kind) || !errors.As(err, &e) || e.Error() != tc.text || e.Try() != tc.try {
			t.Errorf("%s: %v\ngot try %q", tc.name, err, e.Try())
			continue
		}
		if (e.Shown != nil) != (tc.kind == control.ErrNotTrusted) {
			t.Errorf("%s: shown %v", tc.name, e.Shown)
		}
		if tc.name == "other key" && !cmp.Equal(*e.Shown, changed) {
			t.Errorf("shown %+v, want %+v", *e.Shown, changed)
		}
	}
	_, err := c.Connect(t.Context(), "cellar", control.ConnectOptions{})
	if !errors.Is(err, control.ErrNotFound) {
		t.Errorf("connect to nobody: %v", err)
	}
	if heard := m.heard(); slices.Contains(heard, "connect cellar") {
		t.Errorf("the backend heard %q", heard)
	}
}

// decisionFails is a Backend with which no connecting works.
type decisionFails struct {
	*memory
	err error
}

func (d *decisionFails) Connect(context.Context, control.ConnectOptions) (peer.ClusterID, error) {
	return "", d.err
}

func TestDecisionsAreChecked(t *testing.T) {
	m := &memory{peers: twoPeers(), made: []control.Invite{{ID: "00ff", State: control.InviteOpen}, {ID: "00fe", State: control.InviteOpen}, {ID: "aa", State: control.InviteRevoked}}}
	s, _ := serve(t, m)
	long := strings.Repeat("x", control.MaxNote+1)
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/connect", `{}`, 400, `nothing to connect to: name a peer`},
		{"POST", "/v1/connect", ``, 400, `the request's body: EOF`},
		{"POST", "/v1/connect", `{"peer":"barn"} {}`, 400, `more than one value`},
		{"POST", "/v1/connect", `{"peer":"barn","by":"root"}`, 400, `unknown field \"by\"`},
		{"POST", "/v1/connect", `{"peer":"barn","fingerprint":"12"}`, 400, `fingerprint \"12\": want the 64 hexadecimal digits`},
		{"POST", "/v1/connect", `{"token":"` + strings.Repeat("x", maxToken+1) + `"}`, 400, `it is not from liqo-agent invite`},
		{"POST", "/v1/connect", `{"url":"http://192.0.2.1:6447"}`, 400, `URL \"http://192.0.2.1:6447\": want https://HOST:PORT`},
		{"POST", "/v1/peers/barn/accept", `{"fingerprint":"zz"}`, 400, `fingerprint`},
		{"POST", "/v1/peers/nobody/accept", ``, 404, `no peer is called \"nobody\"`},
		{"POST", "/v1/peers/barn/accept", ``, 200, idBarn},
		{"POST", "/v1/peers/barn/reject", `[1`, 200, idBarn}, // reject takes no body, and does not read one
		{"PATCH", "/v1/peers/barn/preferences", `{"autoConnect":"maybe"}`, 400, `autoConnect \"maybe\": want yes, no or undecided`},
		{"PATCH", "/v1/peers/barn/preferences", `{"autoAccept":""}`, 400, `autoAccept \"\": want yes, no or undecided`},
		{"PATCH", "/v1/peers/barn/preferences", `{"note":"` + long + `"}`, 400, `the note is 257 bytes long, at most 256 are allowed`},
		{"PATCH", "/v1/peers/barn/preferences", `{"note":"a\u001b[2J"}`, 400, `cannot be printed`},
		{"PATCH", "/v1/peers/barn/preferences", `{"url":"https://u:p@h"}`, 400, `want https://HOST:PORT`},
		{"PATCH", "/v1/peers/barn/preferences", `{"blocked":true}`, 400, `unknown field`},
		{"POST", "/v1/invites", `{"ttlSeconds":59}`, 400, `at least one minute and at most 30 days`},
		{"POST", "/v1/invites", `{"ttlSeconds":9223372036854775807}`, 400, `at least one minute and at most 30 days`},
		{"POST", "/v1/invites", `{"ttlSeconds":3600,"note":"\u202e"}`, 400, `cannot be printed`},
		{"DELETE", "/v1/invites/00f", ``, 409, `\"00f\" matches 2 invites: 00ff, 00fe`},
		{"DELETE", "/v1/invites/a", ``, 404, `there is no open invite \"a\"`},
		{"DELETE", "/v1/invites/x", ``, 404, `there is no open invite \"x\"`},
		{"POST", "/v1/key/csr", `{"names":[]}`, 400, `no name was given`},
		{"POST", "/v1/key/csr", `{"names":[` + strings.Repeat(`"a",`, maxNames) + `"a"]}`, 400, `65 names for one certificate`},
	} {
		status, body := raw(t, s, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(body, tc.want) || !json.Valid([]byte(body)) {
			t.Errorf("%s %s %.60s: %d %s, want %d with %s", tc.method, tc.path, tc.body, status, body, tc.status, tc.want)
		}
	}
}

// A cluster that only uses the name of another is neither taken for it nor able
// to hide behind it when a person decides about keys.
func TestDecisionsAboutNamesakes(t *testing.T) {
	m := &memory{peers: twoPeers(), requests: []control.Request{{ID: idShed, Name: "barn", Fingerprint: fpBarn.String()}, {ID: idBarn, Name: "barn"}}}
	m.peers = append(m.peers, control.Peer{ID: "rumour", Name: "barn"})
	_, c := serve(t, m)
	ctx := t.Context()
	for verb, call := range map[string]func(ref string) error{
		"accept":   func(ref string) error { _, err := c.Accept(ctx, ref, peer.Fingerprint{}); return err },
		"reject":   func(ref string) error { _, err := c.Reject(ctx, ref); return err },
		"trust":    func(ref string) error { _, err := c.Trust(ctx, ref, fpBarn); return err },
		"distrust": func(ref string) error { _, err := c.Distrust(ctx, ref); return err },
		"block":    func(ref string) error { _, err := c.Block(ctx, ref); return err },
	} {
		if err := call("barn"); !errors.Is(err, control.ErrAmbiguous) || !strings.Contains(err.Error(), idShed) || !strings.Contains(err.Error(), idBarn) {
			t.Errorf("%s barn: %v", verb, err)
		}
		for _, ref := range []string{"9c1b", idBarn, "0558de48-0"} {
			if err := call(ref); err != nil {
				t.Errorf("%s %s: %v", verb, ref, err)
			}
		}
	}
	m.heard()
	if _, err := c.Connect(ctx, "barn", control.ConnectOptions{}); err != nil {
		t.Errorf("connect: %v", err)
	}
	if heard := m.heard(); !cmp.Equal(heard, []string{"connect " + idBarn}) {
		t.Errorf("connect barn is taken as %q", heard)
	}
	// Without the ask, the rumour of the same name does not get in the way.
	m.change(func() { m.requests = nil })
	if _, err := c.Accept(ctx, "barn", fpBarn); err != nil {
		t.Errorf("accept barn: %v", err)
	}
}

// Whatever is sent as a body, the answer is JSON with a status that fits, and
// nothing that is not well formed reaches the backend.
func FuzzBodies(f *testing.F) {
	routes := []struct{ method, path string }{
		{"POST", "/v1/connect"}, {"POST", "/v1/peers/barn/disconnect"}, {"POST", "/v1/peers/barn/accept"}, {"PUT", "/v1/peers/barn/trust"},
		{"PATCH", "/v1/peers/barn/preferences"}, {"POST", "/v1/invites"}, {"POST", "/v1/key/csr"}, {"PUT", "/v1/peers/barn/alias"}, {"PUT", "/v1/log/level"},
		{"PUT", "/v1/domains/example.com"}, {"DELETE", "/v1/domains/example.net"}, {"POST", "/v1/domains/example.net/ask"},
	}
	for i, body := range []string{`{"peer":"barn","url":"https://h:1","token":"t","fingerprint":"` + strings.Repeat("ab", 32) + `","once":true}`, `{"incoming":true}`,
		`{"fingerprint":"` + strings.Repeat("AB:", 31) + `AB"}`, `{}`, `{"autoConnect":"yes","autoAccept":null,"note":"n","url":""}`,
		`{"ttlSeconds":60}`, `{"names":["a","b"]}`, `{"alias":"b"}`, `{"level":"info"}`, ``, `{`, `[]`, `{"x":1}`, `null`, "{\"note\":\"\xff\"}",
		`{"domain":"example.com","autojoin":false,"server":"tls://192.0.2.53","minIntervalSeconds":5,"maxIntervalSeconds":60}`, `{"minIntervalSeconds":-1}`} {
		f.Add(uint8(i), []byte(body))
	}
	m := &memory{peers: twoPeers()}
	s := NewServer(ServerConfig{Backend: m, Level: newLevel(), Logger: discard()})
	h := s.handler()
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		m.heard()
		r := routes[int(route)%len(routes)]
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(r.method, r.path, strings.NewReader(string(body))))
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s answers %q", r.method, r.path, w.Body)
		}
		switch heard := m.heard(); {
		case w.Code == 200:
		case w.Code == 400 && len(heard) == 0:
		case w.Code == 404 && len(heard) == 0: // no such peer or domain
		case w.Code == 409 && len(heard) == 0: // more than one
		default:
			t.Fatalf("%s %s answers %d %s, and the backend heard %q", r.method, r.path, w.Code, w.Body, heard)
		}
	})
}
