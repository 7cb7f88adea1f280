package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bubble"
)

// lan is where the callers of tests come from.
var lan = netip.MustParseAddr("192.0.2.66")

func TestCallers(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	api := &reviewer{tokens: map[string]string{"good": "system:serviceaccount:a:b"}}
	gate := newGate(clientOf(t, api), ca.pool())
	for name, test := range map[string]struct {
		connection *tls.ConnectionState
		header     string
		want       string
	}{
		"certificate":                  {ca.client(t, "system:apiserver", nil), "", "system:apiserver"},
		"certificate of another CA":    {other.client(t, "system:apiserver", nil), "", ""},
		"certificate of a server":      {ca.client(t, "x", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "", ""},
		"certificate that ended":       {ca.client(t, "x", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "", ""},
		"certificate of nobody":        {ca.client(t, "", nil), "", ""},
		"bad certificate, good token":  {other.client(t, "x", nil), "Bearer good", "system:serviceaccount:a:b"},
		"good certificate, bad token":  {ca.client(t, "system:apiserver", nil), "Bearer bad", "system:apiserver"},
		"token":                        {nil, "bearer good", "system:serviceaccount:a:b"},
		"bad token":                    {nil, "Bearer bad", ""},
		"no token":                     {nil, "Bearer ", ""},
		"long token":                   {nil, "Bearer " + strings.Repeat("x", maxToken+1), ""},
		"password":                     {nil, "Basic good", ""},
		"nothing":                      {nil, "", ""},
		"connection without any proof": {&tls.ConnectionState{}, "", ""},
	} {
		who, err := gate.caller(t.Context(), lan, test.connection, http.Header{"Authorization": {test.header}})
		var refused *refusal
		switch {
		case test.want == "":
			if !errors.As(err, &refused) || refused.status != http.StatusUnauthorized {
				t.Errorf("%s: %+v, %v", name, who, err)
			}
		case err != nil || who.Name != test.want:
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	gate.pool.Store(other.pool())
	if _, err := gate.caller(t.Context(), lan, ca.client(t, "system:apiserver", nil), nil); err == nil {
		t.Error("the certificate of a CA that was replaced is accepted")
	}
	gate.pool.Store(nil)
	if _, err := gate.caller(t.Context(), lan, other.client(t, "system:apiserver", nil), nil); err == nil {
		t.Error("a certificate is accepted before the CA is known")
	}
}

func TestPermissions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := &reviewer{allowed: map[string]bool{"a get nodes/healthz ": true, "b get nodes/proxy n": true}}
		gate := newGate(clientOf(t, api), nil)
		ask := func(who, verb, node string, subresources ...string) int {
			t.Helper()
			err := gate.permit(t.Context(), &caller{Name: who}, permission{verb: verb, subresources: subresources, node: node})
			var refused *refusal
			switch {
			case err == nil:
				return http.StatusOK
			case errors.As(err, &refused):
				return refused.status
			}
			t.Fatal(err)
			return 0
		}
		for _, test := range []struct {
			who, verb, node string
			subresources    []string
			want, asked     int
		}{
			{"a", "get", "", []string{"healthz", "proxy"}, 200, 1},
			{"a", "get", "", []string{"healthz", "proxy"}, 200, 0},
			{"b", "get", "n", []string{"healthz", "proxy"}, 200, 2},
			{"b", "get", "n", []string{"proxy"}, 200, 0},
			{"b", "get", "m", []string{"proxy"}, 403, 1},
			{"b", "create", "n", []string{"proxy"}, 403, 1},
			{"b", "create", "n", []string{"proxy"}, 403, 0},
		} {
			before := api.count()
			if got := ask(test.who, test.verb, test.node, test.subresources...); got != test.want || api.count()-before != test.asked {
				t.Errorf("%+v: %d after %d questions", test, got, api.count()-before)
			}
		}
		// A permission that was given counts at once after a denial has run out, and one
		// that was taken away once the permission has.
		api.mu.Lock()
		api.allowed = map[string]bool{"b create nodes/proxy n": true}
		api.mu.Unlock()
		time.Sleep(deniedFor)
		if got := ask("b", "create", "n", "proxy"); got != 200 {
			t.Errorf("after it was allowed: %d", got)
		}
		time.Sleep(allowedFor - deniedFor - time.Second)
		if got := ask("b", "get", "n", "proxy"); got != 200 {
			t.Errorf("within the time that it holds: %d", got)
		}
		time.Sleep(time.Second)
		if got := ask("b", "get", "n", "proxy"); got != 403 {
			t.Errorf("after it was taken away: %d", got)
		}
		// What cannot be asked is neither allowed nor remembered.
		api.mu.Lock()
		api.fails = true
		api.mu.Unlock()
		if got := ask("c", "get", "n", "proxy"); got != 500 {
			t.Errorf("without an answer: %d", got)
		}
		// No caller can make us flood the API server, or spend what is for others.
		before := api.count()
		for i := range 3 * maxAnswers {
			ask("c", "get", fmt.Sprint(i), "proxy")
		}
		if asked := api.count() - before; asked > callerBurst {
			t.Errorf("one caller had %d questions asked at once", asked)
		}
		if got := ask("d", "get", "n", "proxy"); got != 500 {
			t.Errorf("another caller: %d", got)
		}
	})
}

// TestAttackStrangersTokens: the API server is not made to look at more tokens than it
// should, and callers who proved who they are do not notice.
func TestAttackStrangersTokens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		api := &reviewer{tokens: map[string]string{"scraper": "scraper", "renewed": "scraper", "late": "late"}, allowed: map[string]bool{}}
		gate := newGate(clientOf(t, api), ca.pool())
		nodes := make([]string, 50)
		for i := range nodes {
			nodes[i] = fmt.Sprint("node", i)
			api.allowed["system:apiserver get nodes/proxy "+nodes[i]] = true
		}
		try := func(from netip.Addr, token string) string {
			_, err := gate.caller(t.Context(), from, nil, http.Header{"Authorization": {"Bearer " + token}})
			var refused *refusal
			switch {
			case err == nil:
				return "let in"
			case errors.As(err, &refused):
				return http.StatusText(refused.status)
			}
			return err.Error()
		}
		pod := netip.MustParseAddr("10.42.0.9")
		if got := try(pod, "scraper"); got != "let in" {
			t.Fatal(got)
		}
		made := 0
		flood := func(sources int) (asked int) {
			before := api.count()
			for i := range 2000 {
				made++
				try(netip.AddrFrom4([4]byte{192, 0, 2, byte(i % sources)}), fmt.Sprint("nonsense", made))
			}
			return api.count() - before
		}
		within := func(n, most int) string {
			if n <= most {
				return fmt.Sprintf("at most %d are asked about", most)
			}
			return fmt.Sprintf("%d are asked about", n)
		}
		attack.Attempt{What: "show the kubelet API 2,000 tokens at once from one address", As: "stranger on the LAN",
			Want: "at most 20 are asked about"}.Saw(t, within(flood(1), sourceBurst))
		attack.Attempt{What: "keep a caller with a new token out by that", As: "stranger on the LAN", Want: "let in"}.Saw(t, try(pod, "renewed"))
		time.Sleep(time.Minute)
		attack.Attempt{What: "show the kubelet API 2,000 tokens at once from 250 addresses", As: "stranger on the LAN",
			Want: "at most 60 are asked about"}.Saw(t, within(flood(250), strangerBurst))
		time.Sleep(knownFor)
		flood(250)
		attack.Attempt{What: "have the kubelet API forget by such a flood who was let in with a token before", As: "stranger on the LAN",
			Want: "let in"}.Saw(t, try(pod, "scraper"))
		got := "permitted everything"
		for _, node := range nodes {
			who, err := gate.caller(t.Context(), lan, ca.client(t, "system:apiserver", nil), nil)
			if err == nil {
				err = gate.permit(t.Context(), who, permission{verb: "get", subresources: []string{"proxy"}, node: node})
			}
			if err != nil {
				got = err.Error()
			}
		}
		attack.Attempt{What: "keep the API server out of the kubelet API by such a flood", As: "stranger on the LAN",
			Want: "permitted everything"}.Saw(t, got)
		// What they can do is to delay a token that was never seen, until they stop.
		if got := try(pod, "late"); got != "Too Many Requests" {
			t.Errorf("during the flood: %s", got)
		}
		time.Sleep(time.Minute)
		if got := try(pod, "late"); got != "let in" {
			t.Errorf("a minute after the flood: %s", got)
		}
		// A token that was taken back counts for as long as an answer does, and no longer.
		api.mu.Lock()
		api.tokens = nil
		api.mu.Unlock()
		time.Sleep(knownFor)
		if got := try(pod, "late"); got != "Unauthorized" {
			t.Errorf("a token that was taken back: %s", got)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory[int](3)
		for i := range byte(10) {
			m.put([32]byte{i}, int(i), time.Duration(100-i)*time.Second)
		}
		if len(m.answers) != 3 {
			t.Errorf("%d answers are kept", len(m.answers))
		}
		if v, ok := m.get([32]byte{9}); !ok || v != 9 {
			t.Error("the newest is not kept")
		}
		time.Sleep(100 * time.Second)
		if _, ok := m.get([32]byte{9}); ok {
			t.Error("it outlived its time")
		}
	})
}
