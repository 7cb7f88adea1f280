package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		who, err := gate.caller(t.Context(), test.connection, http.Header{"Authorization": {test.header}})
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
	if _, err := gate.caller(t.Context(), ca.client(t, "system:apiserver", nil), nil); err == nil {
		t.Error("the certificate of a CA that was replaced is accepted")
	}
	gate.pool.Store(nil)
	if _, err := gate.caller(t.Context(), other.client(t, "system:apiserver", nil), nil); err == nil {
		t.Error("a certificate is accepted before the CA is known")
	}
}

func TestPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		// Nobody can make us flood the API server, or fill the memory.
		refused := 0
		for i := range 3 * maxAnswers {
			if ask(fmt.Sprint("stranger", i), "get", "n", "proxy") == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < 2*maxAnswers {
			t.Errorf("only %d questions were not asked", refused)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
