package endpoint

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// However often a peer writes, what comes to the API server of it is bounded, by the
// minute, and nobody else is slowed down. Each attack uses up what is there at once, and
// then what came back within a minute.
func TestAttackWritesWithoutEnd(t *testing.T) {
	const objects = "/api/v1/namespaces/b-shop/"
	type attempt = func(t *testing.T, i int) (int, http.Header)
	through := func(l *tunnel.Link, method, target, mediaType, body string) attempt {
		return func(t *testing.T, i int) (int, http.Header) {
			status, _, header := endpointtest.Through(t, l, method, strings.ReplaceAll(target, "#", strconv.Itoa(i%6)), mediaType, body)
			return status, header
		}
	}
	mebi := strings.Repeat("a", 1<<20)
	overwrite := func(l *tunnel.Link) attempt {
		return through(l, "PATCH", objects+"configmaps/c#", allow.ApplyPatch, `{"a":"`+mebi+`"}`)
	}
	for _, tt := range []struct {
		what, as string
		before   int // so many ConfigMaps of a MiB each: they cost less time here, and are of the same budget
		do       func(l *tunnel.Link, s *Server, b *endpointtest.Box) attempt
		sum      func(requests int) int // what that many requests are worth
		most     int                    // in a minute, with those before
		want     string
	}{
		{
			"overwrite six ConfigMaps with a MiB each", "consumer", 0,
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt { return overwrite(l) },
			func(n int) int { return n }, 40, "429 after at most 40 MiB in a minute",
		},
		{
			"change the label of a pod of 256 KiB", "consumer", 24,
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "PATCH", endpointtest.PodsOfB+"/web", allow.MergePatch, `{}`)
			},
			func(n int) int { return n / 4 }, 40, "429 after at most 40 MiB in a minute",
		},
		{
			"create pods", "consumer", 0,
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "POST", endpointtest.PodsOfB, "application/json", `{}`)
			},
			func(n int) int { return n }, podBurst + 60*podRate, "429 after at most 1800 in a minute",
		},
		{
			"make and release a namespace", "consumer", 0,
			func(l *tunnel.Link, s *Server, b *endpointtest.Box) attempt {
				v := visit(t, s, b)
				return func(t *testing.T, i int) (int, http.Header) {
					got := v.send(post([]string{wire.PathNamespaces, wire.PathRelease}[i%2], `{"name":"shop"}`))
					return got.status, got.header
				}
			},
			func(n int) int { return n }, (writeBurst + 60*writeRate) / writesOfNamespace, "429 after at most 360 in a minute",
		},
		{
			"list pods", "consumer", 0,
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "GET", endpointtest.PodsOfB, "", "")
			},
			func(n int) int { return n }, openBurst + 60*openRate, "429 after at most 600 in a minute",
		},
		{
			"write the own PeeringRequest", "trusted peer", 24,
			func(_ *tunnel.Link, s *Server, b *endpointtest.Box) attempt {
				v := visit(t, s, b)
				return func(t *testing.T, _ int) (int, http.Header) {
					got := v.send(patch(endpointtest.OwnRequest, strings.Replace(endpointtest.RequestBody, "mill", strings.Repeat("a", 60<<10), 1), ""))
					return got.status, got.header
				}
			},
			func(n int) int { return n * 60 / 1024 }, 40, "429 after at most 40 MiB in a minute",
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
			a := newAPIServer(t)
			a.answering(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer := "{}"
				if r.URL.Path == endpointtest.PodsOfB+"/web" {
					answer = `{"a":"` + mebi[:256<<10] + `"}`
				}
				_, _ = io.WriteString(w, answer)
			})
			var elapsed atomic.Int64
			begun := time.Now()
			s, _ := a.hosting(t, home, pin(other, third), func(s *Server) {
				s.limits = newLimits()
				s.limits.now = func() time.Time { return begun.Add(time.Duration(elapsed.Load())) }
				for _, b := range []**throttle.Buckets[peer.ClusterID]{&s.limits.guestRate, &s.limits.peers} {
					*b = throttle.New[peer.ClusterID](rate.Inf, 1<<30, maxPeers)
				}
			})
			link := newLink(t, other, s, home)
			for i := range tt.before {
				if status, _ := overwrite(link)(t, i); status != http.StatusOK {
					t.Fatalf("ConfigMap %d before: status %d", i, status)
				}
			}
			do := tt.do(link, s, other)
			passed := 0
			for minute := range 2 {
				for i := 0; ; i++ {
					status, header := do(t, i)
					if status == http.StatusTooManyRequests {
						if n, err := strconv.Atoi(header.Get("Retry-After")); err != nil || n < 1 {
							t.Fatalf("Retry-After is %q", header.Get("Retry-After"))
						}
						break
					}
					if status != http.StatusOK {
						t.Fatalf("request %d in minute %d: status %d", i, minute, status)
					}
					if passed++; tt.sum(passed) > 2*tt.most {
						break
					}
				}
				elapsed.Add(int64(time.Minute))
			}
			got := tt.want
			if n := tt.before + tt.sum(passed); n > tt.most || n < tt.most*9/10 {
				got = fmt.Sprintf("%d pass", n)
			}
			attack.Attempt{What: tt.what + " over and over", As: tt.as, Want: tt.want}.Saw(t, got)
			l := newLink(t, third, s, home)
			if status, body, _ := endpointtest.Through(t, l, "PATCH", "/api/v1/namespaces/c-shop/configmaps/a", allow.ApplyPatch, `{}`); status != http.StatusOK {
				t.Errorf("another consumer gets %d: %s", status, body)
			}
		})
	}
}

// Who hangs up while the API server writes has it counted all the same.
func TestAttackWritesWithoutAnswer(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	asked := make(chan struct{})
	a.answering(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch {
			return
		}
		asked <- struct{}{}
		<-r.Context().Done()
	})
	begun := time.Now()
	s, _ := a.hosting(t, home, pin(other), func(s *Server) {
		s.limits = newLimits()
		s.limits.now = func() time.Time { return begun }
		for _, b := range []**throttle.Buckets[peer.ClusterID]{&s.limits.guestRate, &s.limits.peers} {
			*b = throttle.New[peer.ClusterID](rate.Inf, 1<<30, maxPeers)
		}
	})
	l := newLink(t, other, s, home)
	got := "not refused after 1000"
	for i := range 1000 {
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "https://x"+endpointtest.PodsOfB+"/web", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", allow.MergePatch)
		ended := make(chan int)
		go func() {
			status := 0
			if resp, err := l.RoundTrip(req); err == nil {
				status = resp.StatusCode
				resp.Body.Close()
			}
			ended <- status
		}()
		select {
		case <-asked:
			hangUp()
			<-ended
			continue
		case status := <-ended:
			got = fmt.Sprintf("status %d", status)
		}
		hangUp()
		if i < 100 {
			t.Errorf("refused after %d", i)
		}
		break
	}
	attack.Attempt{What: "change the label of a large pod and hang up before the answer, over and over", As: "consumer", Want: "status 429"}.Saw(t, got)
}
