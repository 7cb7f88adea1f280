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

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// However often a peer writes, what comes to the API server of it is bounded, by the
// minute, and nobody else is slowed down.
func TestAttackWritesWithoutEnd(t *testing.T) {
	const objects = "/api/v1/namespaces/b-shop/"
	ask := func(l *Link, method, target, mediaType, body string) func(t *testing.T, i int) (int, http.Header) {
		return func(t *testing.T, i int) (int, http.Header) {
			status, _, header := through(t, l, method, strings.ReplaceAll(target, "#", strconv.Itoa(i%6)), mediaType, body)
			return status, header
		}
	}
	mebi := strings.Repeat("a", 1<<20)
	for _, tt := range []struct {
		what, as string
		answer   string // of the API server
		do       func(l *Link, s *Server, b *box) func(t *testing.T, i int) (int, http.Header)
		sum      func(requests int) int // what that many requests are worth
		most     int                    // in four minutes
		want     string
	}{
		{
			"overwrite six ConfigMaps with a MiB each", "consumer", `{}`,
			func(l *Link, _ *Server, _ *box) func(*testing.T, int) (int, http.Header) {
				return ask(l, "PATCH", objects+"configmaps/c#", applyPatch, `{"a":"`+mebi+`"}`)
			},
			func(n int) int { return n }, 64, "429 after at most 64 MiB in four minutes",
		},
		{
			"change the label of a pod of 256 KiB", "consumer", `{"a":"` + mebi[:256<<10] + `"}`,
			func(l *Link, _ *Server, _ *box) func(*testing.T, int) (int, http.Header) {
				return ask(l, "PATCH", podsOfB+"/web", mergePatch, `{}`)
			},
			func(n int) int { return n / 4 }, 64, "429 after at most 64 MiB in four minutes",
		},
		{
			"create pods", "consumer", `{}`,
			func(l *Link, _ *Server, _ *box) func(*testing.T, int) (int, http.Header) {
				return ask(l, "POST", podsOfB, "application/json", `{}`)
			},
			func(n int) int { return n }, podBurst + 4*60*podRate, "429 after at most 3600 in four minutes",
		},
		{
			"make and release a namespace", "consumer", `{}`,
			func(l *Link, s *Server, b *box) func(*testing.T, int) (int, http.Header) {
				v := visit(t, s, b)
				return func(t *testing.T, i int) (int, http.Header) {
					got := v.send(post([]string{PathNamespaces, PathRelease}[i%2], `{"name":"shop"}`))
					return got.status, got.header
				}
			},
			func(n int) int { return n }, (writeBurst + 4*60*writeRate) / writesOfNamespace, "429 after at most 720 in four minutes",
		},
		{
			"list pods", "consumer", `{}`,
			func(l *Link, _ *Server, _ *box) func(*testing.T, int) (int, http.Header) {
				return ask(l, "GET", podsOfB, "", "")
			},
			func(n int) int { return n }, openBurst + 4*60*openRate, "429 after at most 1500 in four minutes",
		},
		{
			"write the own PeeringRequest", "trusted peer", `{}`,
			func(_ *Link, s *Server, b *box) func(*testing.T, int) (int, http.Header) {
				v := visit(t, s, b)
				return func(t *testing.T, _ int) (int, http.Header) {
					got := v.send(patch(ownRequest, strings.Replace(requestBody, "mill", strings.Repeat("a", 60<<10), 1), ""))
					return got.status, got.header
				}
			},
			func(n int) int { return n * 60 / 1024 }, 64, "429 after at most 64 MiB in four minutes",
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			home, other, third := newBox(t, idA), newBox(t, idB), newBox(t, idC)
			a := newAPIServer(t)
			a.answering(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, tt.answer)
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
			do := tt.do(other.link(t, s, home), s, other)
			passed := 0
			for minute := range 4 {
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
			if n := tt.sum(passed); n > tt.most || n < tt.most/2 {
				got = fmt.Sprintf("%d pass", n)
			}
			attack.Attempt{What: tt.what + " over and over", As: tt.as, Want: tt.want}.Saw(t, got)
			l := third.link(t, s, home)
			if status, body, _ := through(t, l, "PATCH", "/api/v1/namespaces/c-shop/configmaps/a", applyPatch, `{}`); status != http.StatusOK {
				t.Errorf("another consumer gets %d: %s", status, body)
			}
		})
	}
}

// Who hangs up while the API server writes has it counted all the same.
func TestAttackWritesWithoutAnswer(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
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
	l := other.link(t, s, home)
	got := "not refused after 1000"
	for i := range 1000 {
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "https://x"+podsOfB+"/web", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", mergePatch)
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
