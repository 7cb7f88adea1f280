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
// minute, and nobody else is slowed down. Each attack uses up what is left at once, and
// then what is left of what came back within a minute. Most of both is taken before, because
// thousands of requests take long.
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
	bytes := func(l *limits) *throttle.Buckets[peer.ClusterID] { return l.bytes }
	for _, tt := range []struct {
		what, as string
		budget   func(*limits) *throttle.Buckets[peer.ClusterID]
		taken    [2]int // of the budget, before each part of the attack
		do       func(l *tunnel.Link, s *Server, b *endpointtest.Box) attempt
		each     int // what a request takes
		most     int // what is there at once and within a minute
		want     string
	}{
		{
			"overwrite six ConfigMaps with a MiB each", "consumer", bytes, [2]int{28 << 20, 4 << 20},
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "PATCH", objects+"configmaps/c#", allow.ApplyPatch, `{"a":"`+mebi+`"}`)
			},
			1 << 20, 40 << 20, "429 after at most 40 MiB in a minute",
		},
		{
			"change the label of a pod of 256 KiB", "consumer", bytes, [2]int{30 << 20, 6 << 20},
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "PATCH", endpointtest.PodsOfB+"/web", allow.MergePatch, `{}`)
			},
			256 << 10, 40 << 20, "429 after at most 40 MiB in a minute",
		},
		{
			"create pods", "consumer", func(l *limits) *throttle.Buckets[peer.ClusterID] { return l.pods }, [2]int{1100, 500},
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "POST", endpointtest.PodsOfB, "application/json", `{}`)
			},
			1, podBurst + 60*podRate, "429 after at most 1800 in a minute",
		},
		{
			"make and release a namespace", "consumer", func(l *limits) *throttle.Buckets[peer.ClusterID] { return l.writes }, [2]int{1800, 600},
			func(l *tunnel.Link, s *Server, b *endpointtest.Box) attempt {
				v := visit(t, s, b)
				return func(t *testing.T, i int) (int, http.Header) {
					got := v.send(post([]string{wire.PathNamespaces, wire.PathRelease}[i%2], `{"name":"shop"}`))
					return got.status, got.header
				}
			},
			10, writeBurst + 60*writeRate, "429 after at most 360 in a minute",
		},
		{
			"list pods", "consumer", func(l *limits) *throttle.Buckets[peer.ClusterID] { return l.opens }, [2]int{200, 200},
			func(l *tunnel.Link, _ *Server, _ *endpointtest.Box) attempt {
				return through(l, "GET", endpointtest.PodsOfB, "", "")
			},
			1, openBurst + 60*openRate, "429 after at most 600 in a minute",
		},
		{
			"write the own PeeringRequest", "trusted peer", bytes, [2]int{31 << 20, 7 << 20},
			func(_ *tunnel.Link, s *Server, b *endpointtest.Box) attempt {
				v := visit(t, s, b)
				return func(t *testing.T, _ int) (int, http.Header) {
					got := v.send(patch(endpointtest.OwnRequest, strings.Replace(endpointtest.RequestBody, "mill", strings.Repeat("a", 60<<10), 1), ""))
					return got.status, got.header
				}
			},
			60 << 10, 40 << 20, "429 after at most 40 MiB in a minute",
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
			do := tt.do(link, s, other)
			rest, passed := tt.most, 0
			for minute, taken := range tt.taken {
				if wait := tt.budget(s.limits).TakeN(other.Identity.ClusterID, taken, s.limits.now()); wait > 0 {
					t.Fatalf("%d are not there in minute %d: wait %s", taken, minute, wait)
				}
				rest -= taken
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
					if passed += tt.each; passed > tt.most {
						break
					}
				}
				elapsed.Add(int64(time.Minute))
			}
			got := tt.want
			if passed > rest || passed < rest*3/4 {
				got = fmt.Sprintf("%d pass of the last %d", passed, rest)
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
