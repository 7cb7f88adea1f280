package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// answering is a link whose requests are answered as a test says, and what it tells.
func answering(answer func(r *http.Request) (int, string, http.Header)) (*Link, http.RoundTripper, *int) {
	changes := new(int)
	l := &Link{log: slog.New(slog.DiscardHandler), now: time.Now, started: time.Now(), hear: func() { *changes++ }}
	return l, l.wrap(transportFunc(func(r *http.Request) (*http.Response, error) {
		status, body, header := answer(r)
		if status == 0 {
			return nil, errors.New(body)
		}
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})), changes
}

func get(t *testing.T, rt http.RoundTripper, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://nowhere"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func forbidden(message string) string {
	return fmt.Sprintf(`{"kind":"Status","status":"Failure","reason":"Forbidden","message":%q,"code":403}`, message)
}

func TestMissingPermissions(t *testing.T) {
	const cannot = `User "system:serviceaccount:liqo:liqo-agent" cannot list resource "nodes" in API group "" at the cluster scope`
	bubble.Test(t, func(t *testing.T) {
		body, allowed := forbidden("nodes is forbidden: "+cannot), false
		l, rt, changes := answering(func(*http.Request) (int, string, http.Header) {
			if allowed {
				return http.StatusOK, "fine", nil
			}
			return http.StatusForbidden, body, nil
		})
		for range 3 {
			if got := get(t, rt, "/api/v1/nodes?watch=1"); got != body {
				t.Fatalf("the answer arrives as %q", got)
			}
		}
		if got := l.Status().Forbidden; !slices.Equal(got, []string{cannot}) || *changes != 1 {
			t.Fatalf("missing: %q, told %d times", got, *changes)
		}
		for _, other := range []string{
			`pods "x" is forbidden: exceeded quota: liqo, requested: pods=1`,
			`pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces`,
			`secrets "x" is forbidden: unable to create new content in namespace y because it is being terminated`,
			"", `not JSON`,
		} {
			if body = forbidden(other); other == "not JSON" {
				body = other
			}
			get(t, rt, "/api/v1/pods")
		}
		if got := l.Status().Forbidden; len(got) != 1 {
			t.Fatalf("what is no matter of permissions counts: %q", got)
		}
		as := func(message string) {
			body = forbidden(message)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://nowhere/apis/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Impersonate-User", "somebody")
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		as(`x is forbidden: User "somebody" cannot get resource "x" in API group ""`)
		if got := l.Status().Forbidden; len(got) != 1 {
			t.Fatalf("what somebody else may not do counts: %q", got)
		}
		const speaks = `User "system:serviceaccount:liqo:liqo-agent" cannot impersonate resource "users" in API group "" at the cluster scope`
		as(`users "somebody" is forbidden: ` + speaks)
		if got := l.Status().Forbidden; !slices.Equal(got, []string{speaks, cannot}) {
			t.Fatalf("that the agent may not speak for others does not count: %q", got)
		}
		l.denials = l.denials[:1]
		body = forbidden(`clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "y" (groups=["z"]) is attempting to grant RBAC permissions not currently held:` + "\n{}")
		get(t, rt, "/apis/rbac.authorization.k8s.io/v1/clusterroles/x")
		if got := l.Status().Forbidden; len(got) != 2 {
			t.Fatalf("escalation does not count: %q", got)
		}

		allowed = true
		get(t, rt, "/api/v1/pods")
		if got := l.Status().Forbidden; len(got) != 2 {
			t.Fatalf("what was allowed is something else: %q", got)
		}
		get(t, rt, "/api/v1/nodes")
		if got := l.Status().Forbidden; len(got) != 1 {
			t.Fatalf("what is allowed now is still missing: %q", got)
		}
		time.Sleep(forbiddenFor)
		if got := l.Status().Forbidden; len(got) != 0 {
			t.Fatalf("what was not needed for long is still missing: %q", got)
		}

		allowed = false
		for i := range 3 * maxForbidden {
			body = forbidden(fmt.Sprintf(`x is forbidden: User "u" cannot get resource "r%02d" in API group ""`, i))
			get(t, rt, fmt.Sprint("/api/v1/r", i))
		}
		if got := l.Status().Forbidden; len(got) != maxForbidden {
			t.Fatalf("%d are kept", len(got))
		}
		l.trying("https://elsewhere", "another")
		if got := l.Status().Forbidden; len(got) != 0 {
			t.Fatalf("what another server forbade: %q", got)
		}
	})
}

func TestWhyThereIsNoConnection(t *testing.T) {
	status := http.StatusOK
	l, rt, changes := answering(func(*http.Request) (int, string, http.Header) {
		if status == 0 {
			return 0, "connection refused", nil
		}
		return status, "", nil
	})
	for i, step := range []struct {
		do   func()
		want Trouble
	}{
		{func() {}, TroubleNone},
		{func() { l.waiting(ErrSwitchedOff) }, TroubleOff},
		{func() { l.waiting(fmt.Errorf("x: %w", ErrNoKubeconfig)) }, TroubleNoKubeconfig},
		{func() { l.waiting(errors.New("yaml: not quite")) }, TroubleKubeconfig},
		{func() { l.trying("https://x", "file"); status = 0; get(t, rt, "/a"); l.waiting(errors.New("refused")) }, TroubleUnreachable},
		{func() { status = http.StatusUnauthorized; get(t, rt, "/a"); l.waiting(errors.New("401")) }, TroubleCredentials},
		{func() { status = http.StatusInternalServerError; get(t, rt, "/a"); l.waiting(errors.New("500")) }, TroubleCredentials},
		{func() { status = http.StatusConflict; get(t, rt, "/a"); l.waiting(errors.New("no such version")) }, TroubleSetup},
		{func() { l.connected(func(error) {}) }, TroubleNone},
		{func() { status = 0; get(t, rt, "/a"); l.disconnected(errLost) }, TroubleUnreachable},
		{func() { l.connected(func(error) {}); l.disconnected(context.Canceled) }, TroubleNone},
	} {
		before := *changes
		step.do()
		if got := l.Status().Trouble; got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if i > 0 && *changes == before && i != 6 {
			t.Errorf("step %d is not told", i)
		}
	}
}

func TestClockOfTheServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var ahead time.Duration
		header := true
		l, rt, _ := answering(func(*http.Request) (int, string, http.Header) {
			h := http.Header{}
			if header {
				h.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			}
			return http.StatusOK, "", h
		})
		for _, tc := range []struct{ ahead, least, most time.Duration }{
			{0, 0, 0},
			{900 * time.Millisecond, 0, time.Second},
			{time.Hour, time.Hour - time.Second, time.Hour},
			{-time.Hour, -time.Hour, -time.Hour + time.Second},
			{0, 0, 0},
		} {
			ahead = tc.ahead
			get(t, rt, "/")
			if got := l.Status().ClockOffset; got < tc.least || got > tc.most {
				t.Errorf("%v ahead is seen as %v", tc.ahead, got)
			}
			time.Sleep(clockEvery)
		}
		ahead = time.Hour
		get(t, rt, "/")
		ahead = 0
		get(t, rt, "/") // too soon to be looked at
		header = false
		time.Sleep(clockEvery)
		get(t, rt, "/") // says nothing
		if got := l.Status().ClockOffset; got < 59*time.Minute {
			t.Errorf("%v", got)
		}
	})
}

// A clock that was wrong and is set right is looked at again as soon as any other.
func TestClockIsSetRight(t *testing.T) {
	for _, wrong := range []time.Duration{400 * 24 * time.Hour, -400 * 24 * time.Hour} {
		var c clock
		now := time.Now()
		look := func(now time.Time, off, since time.Duration) time.Duration {
			header := http.Header{"Date": {now.UTC().Format(http.TimeFormat)}}
			c.look(header, now.Add(off), now.Add(off), since)
			return time.Duration(c.offset.Load())
		}
		if got := look(now, wrong, 0); (got + wrong).Abs() > time.Second {
			t.Errorf("%v ahead: the server is ahead by %v", wrong, got)
		}
		if got := look(now.Add(clockEvery), 0, clockEvery); got != 0 {
			t.Errorf("%v ahead before: the server is ahead by %v", wrong, got)
		}
	}
}
