package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/sharing/workload"
)

// amounts reads "cpu=2 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, field := range strings.Fields(text) {
		name, q, _ := strings.Cut(field, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func podOf(name, uid, phase, what string) *guestPod {
	p := &guestPod{amounts: amounts(what)}
	p.Namespace, p.Name, p.UID = "ns", name, types.UID(uid)
	p.Status.Phase = corev1.PodPhase(phase)
	return p
}

func TestReserve(t *testing.T) {
	const offer = "cpu=4 memory=4Gi pods=3 nvidia.com/gpu=1"
	here := []*guestPod{
		podOf("a", "a1", "Running", "cpu=1 memory=1Gi pods=1"),
		podOf("b", "b1", "Pending", "cpu=1500m memory=1Gi pods=1 nvidia.com/gpu=1"),
		podOf("old", "o1", "Succeeded", "cpu=4 memory=4Gi pods=1"),
		podOf("broken", "x1", "Failed", "cpu=4 memory=4Gi pods=1"),
	}
	for _, test := range []struct {
		name, pod, more, reason string
		says                    []string
	}{
		{name: "fits exactly", pod: "c", more: "cpu=1500m memory=2Gi pods=1"},
		{name: "asks for nothing", pod: "c", more: "cpu=0 memory=0 pods=1 example.com/foo=0"},
		{name: "too much cpu", pod: "c", more: "cpu=1501m memory=2Gi pods=1", reason: ReasonOfferUsedUp, says: []string{"cpu of the offer (1501m asked for, 1500m of 4 left)"}},
		{name: "too much of two", pod: "c", more: "cpu=2 memory=3Gi pods=1", reason: ReasonOfferUsedUp, says: []string{"cpu", "memory", "2Gi of 4Gi left"}},
		{name: "too much of what is gone", pod: "c", more: "nvidia.com/gpu=1 pods=1", reason: ReasonOfferUsedUp, says: []string{"0 of 1 left"}},
		{name: "not offered", pod: "c", more: "cpu=1 example.com/foo=1 pods=1", reason: ReasonNotOffered, says: []string{"example.com/foo (1 asked for)"}},
		{name: "overflows", pod: "c", more: "cpu=1 memory=9223372036854775807 pods=1", reason: ReasonOfferUsedUp},
		{name: "again", pod: "b", more: "cpu=1500m memory=1Gi pods=1 nvidia.com/gpu=1"},
		{name: "again, with more", pod: "b", more: "cpu=3001m memory=1Gi pods=1 nvidia.com/gpu=1", reason: ReasonOfferUsedUp},
		{name: "where one has ended", pod: "old", more: "cpu=1500m pods=1"},
		{name: "where one has ended, too much", pod: "old", more: "cpu=1600m pods=1", reason: ReasonOfferUsedUp},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAccount(time.Now)
			for _, p := range here {
				a.put(p)
			}
			_, refused := a.reserve("ns/"+test.pod, amounts(test.more), amounts(offer), 1)
			switch {
			case test.reason == "" && refused != nil:
				t.Errorf("refused: %v", refused)
			case test.reason != "" && (refused == nil || refused.Reason != test.reason):
				t.Errorf("refused with %+v, want %s", refused, test.reason)
			}
			for _, words := range test.says {
				if refused != nil && !strings.Contains(refused.Message, words) {
					t.Errorf("%q does not say %q", refused.Message, words)
				}
			}
		})
	}
}

func TestEndedPodsAreBoundedToo(t *testing.T) {
	a := newAccount(time.Now)
	offer := amounts("pods=2")
	for i := range 2 * podsPerSlot {
		if _, refused := a.reserve(fmt.Sprintf("ns/p%d", i), amounts("pods=1"), offer, 1); refused != nil {
			t.Fatalf("pod %d: %v", i, refused)
		}
		a.put(podOf(fmt.Sprintf("p%d", i), fmt.Sprint(i), "Succeeded", "pods=1"))
		a.settle(fmt.Sprintf("ns/p%d", i), a.slots[fmt.Sprintf("ns/p%d", i)].reserved[0], podOf("", fmt.Sprint(i), "", ""))
	}
	if _, refused := a.reserve("ns/more", amounts("pods=1"), offer, 1); refused == nil || refused.Reason != ReasonTooManyPods {
		t.Errorf("one more pod: %v, want %s", refused, ReasonTooManyPods)
	}
	if _, refused := a.reserve("ns/p1", amounts("pods=1"), offer, 1); refused != nil {
		t.Errorf("a name that is there: %v", refused)
	}
	a.drop(podOf("p0", "0", "", ""))
	if _, refused := a.reserve("ns/more", amounts("pods=1"), offer, 1); refused != nil {
		t.Errorf("after one was deleted: %v", refused)
	}
}

func TestReservationsEnd(t *testing.T) {
	offer, one := amounts("cpu=1 pods=9"), amounts("cpu=1 pods=1")
	full := func(a *account) bool {
		r, refused := a.reserve("ns/other", one, offer, 1)
		if refused == nil {
			a.settle("ns/other", r, nil)
		}
		return refused != nil
	}
	for _, test := range []struct {
		name string
		do   func(a *account, r *reserved)
		full bool
	}{
		{"answered late", func(a *account, r *reserved) {
			time.Sleep(reservation)
			full(a)
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1"))
		}, true},
		{"in flight", func(*account, *reserved) {}, true},
		{"not created", func(a *account, r *reserved) { a.answered("ns/web", r, nil) }, false},
		{"not known", func(a *account, r *reserved) { a.answered("ns/web", r, []byte{}) }, true},
		{"answered with nonsense", func(a *account, r *reserved) { a.answered("ns/web", r, []byte(`{"metadata":{}}`)) }, true},
		{"created", func(a *account, r *reserved) { a.answered("ns/web", r, []byte(`{"metadata":{"uid":"u1"}}`)) }, true},
		{"created, then deleted", func(a *account, r *reserved) {
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1"))
			a.put(podOf("web", "u1", "Pending", "cpu=1 pods=1"))
			a.drop(podOf("web", "u1", "Pending", "cpu=1 pods=1"))
		}, false},
		{"seen and deleted before the answer", func(a *account, r *reserved) {
			a.put(podOf("web", "u1", "Pending", "cpu=1 pods=1"))
			a.drop(podOf("web", "u1", "Pending", "cpu=1 pods=1"))
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1"))
		}, false},
		{"ended", func(a *account, r *reserved) {
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1"))
			a.put(podOf("web", "u1", "Succeeded", "cpu=1 pods=1"))
		}, false},
		{"another one of that name went", func(a *account, r *reserved) {
			a.put(podOf("web", "u0", "Running", "cpu=1 pods=1"))
			a.drop(podOf("web", "u0", "Running", "cpu=1 pods=1"))
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1"))
		}, true},
		{"the API server added to it", func(a *account, r *reserved) {
			r.amounts = amounts("cpu=0 pods=1")
			a.settle("ns/web", r, podOf("web", "u1", "", "cpu=1 pods=1"))
		}, true},
		{"counted anew", func(a *account, r *reserved) { a.replace(nil, nil, nil) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := newAccount(time.Now)
				r, refused := a.reserve("ns/web", one, offer, 1)
				if refused != nil {
					t.Fatal(refused)
				}
				time.Sleep(reservation - time.Nanosecond)
				test.do(a, r)
				if full(a) != test.full {
					t.Errorf("full: %t, want %t", full(a), test.full)
				}
				time.Sleep(reservation)
				if full(a) {
					t.Error("still full after the time of a reservation")
				}
				if pod := a.slots["ns/web"]; pod != nil && pod.pod == nil {
					t.Error("an unused name is remembered")
				}
			})
		})
	}
}

// TestParallelReservations has many goroutines want what is left.
func TestParallelReservations(t *testing.T) {
	a := newAccount(time.Now)
	offer := amounts("cpu=10 pods=100")
	var group sync.WaitGroup
	var got atomic.Int64
	for i := range 200 {
		group.Go(func() {
			key := fmt.Sprintf("p%d", i)
			r, refused := a.reserve("ns/"+key, amounts("cpu=300m pods=1"), offer, 1)
			if refused != nil {
				return
			}
			got.Add(1)
			pod := podOf(key, key, "Pending", "cpu=300m pods=1")
			if i%2 == 0 {
				a.put(pod)
			}
			a.settle("ns/"+key, r, pod)
			a.put(pod)
		})
	}
	group.Wait()
	if got.Load() != 33 {
		t.Errorf("%d pods were let in, want 33", got.Load())
	}
	if pods, used := a.totals(); pods != 33 || used.Cpu().MilliValue() != 9900 {
		t.Errorf("%d pods with %s are counted", pods, used.Cpu())
	}
}

func TestObjects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAccount(time.Now)
		for i := range maxObjectBytes >> 20 {
			if refused := a.reserveObject(fmt.Sprint("secrets/ns/", i), weight{bytes: 1 << 20}); refused != nil {
				t.Fatalf("object %d: %v", i, refused)
			}
		}
		if refused := a.reserveObject("secrets/ns/more", weight{bytes: 1}); refused == nil || refused.Reason != ReasonTooManyObjects {
			t.Errorf("a byte too many: %v", refused)
		}
		if refused := a.reserveObject("secrets/ns/1", weight{bytes: 1 << 20}); refused != nil {
			t.Errorf("again: %v", refused)
		}
		a.putObject("secrets/ns/1", weight{bytes: 1 << 20})
		a.dropObject("secrets/ns/1")
		if refused := a.reserveObject("secrets/ns/more", weight{bytes: 1 << 20}); refused != nil {
			t.Errorf("after one was deleted: %v", refused)
		}
		time.Sleep(reservation) // none of them was ever seen
		for i := range maxObjects {
			if refused := a.reserveObject(fmt.Sprint("configmaps/ns/", i), weight{bytes: 10}); refused != nil {
				t.Fatalf("object %d: %v", i, refused)
			}
		}
		if refused := a.reserveObject("configmaps/ns/more", weight{bytes: 10}); refused == nil || refused.Reason != ReasonTooManyObjects {
			t.Errorf("one too many: %v", refused)
		}
		time.Sleep(reservation)
		if !a.empty() {
			t.Error("what was never seen still counts")
		}
	})
}

// cluster is an API server that holds pods, and tells of them late.
type cluster struct {
	pods   map[string]*guestPod // by name
	events []func(*account)
	uids   int
}

// TestOfferHolds: whatever is asked for, answered, lost and told late, in any order,
// what runs is never more than the offer; and in the end nothing is counted that is
// not there.
func TestOfferHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		a := newAccount(func() time.Time { return now })
		c := &cluster{pods: map[string]*guestPod{}}
		offer := amounts("cpu=10 pods=6")
		type call struct {
			name  string
			more  corev1.ResourceList
			r     *reserved
			until time.Time
		}
		var calls []call
		drained := now // when the watch had told everything last
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		deliver := func(n int) {
			for _, event := range c.events[:n] {
				event(a)
			}
			c.events = c.events[n:]
			if len(c.events) == 0 {
				drained = now
			}
		}
		put := func(p *guestPod) { c.events = append(c.events, func(a *account) { a.put(p) }) }
		end := func(i int, answer *guestPod, known bool) {
			if !known {
				answer = &guestPod{}
			}
			a.settle("ns/"+calls[i].name, calls[i].r, answer)
			calls = slices.Delete(calls, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				name := names.Draw(t, "name")
				more := corev1.ResourceList{"cpu": *resource.NewQuantity(rapid.Int64Range(0, 5).Draw(t, "cpu"), resource.DecimalSI), "pods": resource.MustParse("1")}
				if r, refused := a.reserve("ns/"+name, more, offer, 1); refused == nil {
					calls = append(calls, call{name, more, r, now.Add(reservation)})
				}
			},
			"answer": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip("nobody waits")
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				known := rapid.Bool().Draw(t, "known")
				if c.pods[calls[i].name] != nil || rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					end(i, nil, known)
					return
				}
				c.uids++
				p := &guestPod{amounts: calls[i].more}
				p.Namespace, p.Name, p.UID, p.Status.Phase = "ns", calls[i].name, types.UID(fmt.Sprint(c.uids)), corev1.PodPending
				c.pods[p.Name] = p
				put(p)
				if rapid.Bool().Draw(t, "told first") {
					deliver(len(c.events))
				}
				end(i, p, known)
			},
			"tell": func(t *rapid.T) {
				deliver(rapid.IntRange(0, len(c.events)).Draw(t, "events"))
			},
			"end": func(t *rapid.T) {
				p := c.pods[names.Draw(t, "name")]
				if p == nil {
					t.Skip("no such pod")
				}
				q := *p
				q.Status.Phase = corev1.PodSucceeded
				c.pods[q.Name] = &q
				put(&q)
			},
			"delete": func(t *rapid.T) {
				p := c.pods[names.Draw(t, "name")]
				if p == nil {
					t.Skip("no such pod")
				}
				delete(c.pods, p.Name)
				c.events = append(c.events, func(a *account) { a.drop(p) })
			},
			"wait": func(t *rapid.T) {
				then := now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				// No request and no event takes as long as a reservation.
				for i := len(calls) - 1; i >= 0; i-- {
					if !calls[i].until.After(then) {
						end(i, nil, rapid.Bool().Draw(t, "known"))
					}
				}
				if then.Sub(drained) >= reservation/2 {
					deliver(len(c.events))
				}
				now = then
				if len(c.events) == 0 {
					drained = now
				}
			},
			"relist": func(t *rapid.T) {
				c.events = nil
				drained = now
				a.replace(slices.Collect(maps.Values(c.pods)), nil, nil)
			},
			"": func(t *rapid.T) {
				used := corev1.ResourceList{}
				for _, p := range c.pods {
					if !p.ended() {
						workload.Add(used, p.amounts)
					}
				}
				if used.Cpu().Cmp(*offer.Cpu()) > 0 || used.Pods().Cmp(*offer.Pods()) > 0 {
					t.Fatalf("%s cpu and %s pods are used", used.Cpu(), used.Pods())
				}
			},
		})
		deliver(len(c.events))
		now = now.Add(reservation)
		a.sweep()
		if len(a.slots) != len(c.pods) {
			t.Fatalf("%d names are counted, there are %d", len(a.slots), len(c.pods))
		}
		pods, used := a.totals()
		want := corev1.ResourceList{}
		alive := 0
		for _, p := range c.pods {
			if !p.ended() {
				alive++
				workload.Add(want, p.amounts)
			}
		}
		if pods != alive || used.Cpu().Cmp(*want.Cpu()) != 0 {
			t.Fatalf("%d pods with %s cpu are counted, there are %d with %s", pods, used.Cpu(), alive, want.Cpu())
		}
	})
}

func TestLongPodsAreBounded(t *testing.T) {
	a := newAccount(time.Now)
	offer := amounts("pods=4") // 20 names, 320 KiB
	if _, refused := a.reserve("ns/a", amounts("pods=1"), offer, 256<<10); refused != nil {
		t.Fatal(refused)
	}
	ended := podOf("a", "a", "Succeeded", "pods=1")
	ended.size = 256 << 10
	a.put(ended)
	a.settle("ns/a", a.slots["ns/a"].reserved[0], ended)
	if _, refused := a.reserve("ns/b", amounts("pods=1"), offer, 64<<10+1); refused == nil || refused.Reason != ReasonTooManyPods {
		t.Errorf("a byte too many: %v", refused)
	}
	if _, refused := a.reserve("ns/a", amounts("pods=1"), offer, 320<<10); refused != nil {
		t.Errorf("the same name: %v", refused)
	}
}

func TestLimitsCount(t *testing.T) {
	a := newAccount(time.Now)
	offer := withLimits(amounts("cpu=2 memory=1Gi pods=9"))
	if _, refused := a.reserve("ns/a", amounts("cpu=0 limits.cpu=2 limits.memory=512Mi pods=1"), offer, 1); refused != nil {
		t.Fatal(refused)
	}
	_, refused := a.reserve("ns/b", amounts("cpu=0 limits.cpu=1 limits.memory=512Mi pods=1"), offer, 1)
	if refused == nil || refused.Reason != ReasonOfferUsedUp || !strings.Contains(refused.Message, "cpu (limits)") {
		t.Errorf("limits of more than the offer: %v", refused)
	}
}

func TestOldNewsChangesNothing(t *testing.T) {
	a := newAccount(time.Now)
	a.put(podOf("web", "u2", "Running", "cpu=1 pods=1"))
	a.drop(podOf("web", "u1", "Running", "cpu=1 pods=1"))
	if pods, _ := a.totals(); pods != 1 {
		t.Error("the end of an earlier pod ended the one that is there")
	}
	// The offer shrank below what is used: who repeats a request, for less, adds nothing.
	if _, refused := a.reserve("ns/web", amounts("cpu=500m pods=1"), amounts("cpu=100m pods=1"), 1); refused != nil {
		t.Errorf("refused: %v", refused)
	}
}
