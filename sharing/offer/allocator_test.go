package offer

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
)

const self = peer.ClusterID("self")

var t0 = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

// desk is an Allocator at work: time passes, and whoever the Allocator says is looked at.
type desk struct {
	*Allocator
	now    time.Time
	pool   Pool
	terms  Terms
	due    time.Time // when Measure wants to be called again; zero for never
	writes map[peer.ClusterID]int
	has    map[peer.ClusterID]*api.AdvertisementSpec
	asks   map[peer.ClusterID]api.RequestedResources
}

// newDesk returns an Allocator that knows that much cpu to be free, in thousandths.
func newDesk(free int64, consumers ...peer.ClusterID) *desk {
	d := &desk{
		Allocator: NewAllocator(), now: t0, terms: Terms{Percentage: 100, Overcommit: 100, Hysteresis: 10},
		writes: map[peer.ClusterID]int{}, has: map[peer.ClusterID]*api.AdvertisementSpec{},
		asks: map[peer.ClusterID]api.RequestedResources{},
	}
	d.pool = Pool{Nodes: 1, Free: Amounts{cpu: free}}
	d.join(consumers...)
	return d
}

// join has clusters become consumers, one after the other, as peering does it.
func (d *desk) join(ids ...peer.ClusterID) {
	for _, id := range ids {
		d.look(id)
		d.Admit(id, true, d.asks[id])
		d.measure()
	}
}

// ask has a consumer ask for that much CPU, and reports whether that is news.
func (d *desk) ask(id peer.ClusterID, cpu api.RequestedAmount) bool {
	d.asks[id] = api.RequestedResources{CPU: cpu}
	d.look(id)
	news := d.Admit(id, true, d.asks[id])
	d.measure()
	return news
}

func (d *desk) leave(id peer.ClusterID) {
	d.Admit(id, false, d.asks[id])
	delete(d.has, id)
	d.measure()
}

// look is a reconcile of a consumer: what it is offered is written if it is new.
func (d *desk) look(id peer.ClusterID) {
	if spec := d.Offer(self, id, Prior{Asked: d.asks[id]}, d.now); spec != nil && spec != d.has[id] {
		d.has[id] = spec
		d.writes[id]++
	}
}

func (d *desk) measure() {
	changed, again := d.Measure(d.pool, d.terms, d.now)
	d.due = time.Time{}
	if again > 0 {
		d.due = d.now.Add(again)
	}
	for _, id := range changed {
		d.look(id)
	}
}

// free changes what is free.
func (d *desk) free(amount int64) {
	d.pool.Free = Amounts{cpu: amount}
	d.measure()
}

// pass lets time pass.
func (d *desk) pass(t time.Duration) {
	end := d.now.Add(t)
	for !d.due.IsZero() && !d.due.After(end) {
		d.now = d.due
		d.measure()
	}
	d.now = end
	for id := range d.has {
		d.look(id)
	}
}

// told says what the consumers have, in thousandths of a CPU.
func (d *desk) told() string {
	out := ""
	for _, id := range slices.Sorted(maps.Keys(d.has)) {
		out += fmt.Sprintf("%s:%d ", id, parseAll(d.has[id].ResourceQuota.Hard)[cpu])
	}
	return out
}

// TestPeek: who looks at what would be offered changes nothing.
func TestPeek(t *testing.T) {
	d := newDesk(4000)
	b := d.Allocator
	b.Measure(d.pool, d.terms, t0)
	peeked := b.Peek(self, "a", Prior{}, t0)
	b.Admit("a", true, api.RequestedResources{})
	if peeked == nil || b.Summary().Offers["a"] != nil {
		t.Errorf("peeked %v, told %v", peeked, b.Summary().Offers["a"])
	}
	if b.Peek(self, "a", Prior{Unknown: true}, t0) != nil {
		t.Error("something is offered that may have been offered before")
	}
	later := t0.Add(time.Hour)
	told := b.Offer(self, "a", Prior{}, later)
	if told == nil || !told.Timestamp.Equal(&metav1.Time{Time: later}) || b.Peek(self, "a", Prior{}, later) != told {
		t.Errorf("told %+v", told)
	}
	// One that is about to be renewed is not renewed by that.
	if end := later.Add(renewal); b.Peek(self, "a", Prior{}, end) == told || b.Summary().Offers["a"] != told {
		t.Error("it was renewed by a look at it")
	}
}

func (d *desk) expect(t *testing.T, when, told string, writes int) {
	t.Helper()
	sum := 0
	for _, n := range d.writes {
		sum += n
	}
	if got := d.told(); got != told || sum != writes {
		t.Errorf("%s: %safter %d writes, want %safter %d", when, got, sum, told, writes)
	}
}

func TestAllocatorSettles(t *testing.T) {
	d := newDesk(4000, "a")
	d.expect(t, "first", "a:4000 ", 1)
	d.free(3700)
	d.pass(time.Hour)
	d.expect(t, "a little less", "a:4000 ", 1)
	d.free(2000)
	d.pass(settles - time.Second)
	d.expect(t, "much less, a moment ago", "a:4000 ", 1)
	d.free(3900)
	d.pass(time.Hour)
	d.expect(t, "a short dip", "a:4000 ", 1)
	d.free(2000)
	d.pass(settles / 2)
	d.free(1500)
	d.pass(settles/2 - time.Second)
	d.expect(t, "never the same, and not for long", "a:4000 ", 1)
	d.pass(time.Second)
	d.expect(t, "less for long enough", "a:1500 ", 2)
	d.pass(time.Hour)
	d.expect(t, "an hour later", "a:1500 ", 2)
	d.free(0)
	d.pass(settles)
	d.expect(t, "nothing left", "a:0 ", 3)
	d.free(10)
	d.expect(t, "something again", "a:10 ", 4)
	d.pool.Labels = map[string]string{"zone": "yard"}
	d.free(10)
	d.pass(settles - time.Second)
	d.expect(t, "another label, a moment ago", "a:10 ", 4)
	d.pass(time.Second)
	d.expect(t, "another label", "a:10 ", 5)
	d.pool.Images = []api.ContainerImage{{Names: []string{"x"}}}
	d.free(10)
	d.pass(time.Hour)
	d.expect(t, "another image", "a:10 ", 5)
	d.pool.Free, d.pool.Nodes = Amounts{}, 0
	d.measure()
	d.pass(settles)
	d.expect(t, "no node", "a:0 ", 6)
}

func TestAllocatorShares(t *testing.T) {
	d := newDesk(4000, "a")
	d.join("b")
	d.expect(t, "a second one came", "a:4000 b:2000 ", 2)
	d.pass(gathers)
	d.expect(t, "and the first one knows", "a:2000 b:2000 ", 3)
	d.join("c", "d")
	d.pass(gathers)
	d.expect(t, "two more at once", "a:1000 b:1000 c:1000 d:1000 ", 8)
	d.leave("c")
	d.leave("d")
	d.leave("b")
	d.pass(gathers)
	d.expect(t, "and they leave", "a:4000 ", 9)
	d.terms.Percentage = 99
	d.measure()
	d.pass(gathers)
	d.expect(t, "what people decide is exact", "a:3960 ", 10)
	d.terms.Hysteresis = 0
	d.measure()
	d.pass(time.Hour)
	d.expect(t, "a setting that changes nothing", "a:3960 ", 10)
	d.terms.Overcommit = 200
	d.measure()
	d.pass(time.Hour)
	d.expect(t, "overcommit without others", "a:3960 ", 10)
	d.join("b")
	d.pass(time.Hour)
	d.expect(t, "overcommit with another one", "a:3960 b:3960 ", 11)
	if got := d.Consumers(); got != 2 {
		t.Errorf("%d consumers", got)
	}
	summary := d.Summary()
	if summary.Pool == nil || summary.Pool.Free[cpu] != 4000 || len(summary.Offers) != 2 || summary.Offers["b"] != d.has["b"] {
		t.Errorf("%+v", summary)
	}
	all := api.RequestedResources{}
	if d.Admit("a", true, all) || !d.Admit("a", false, all) || d.Admit("a", false, api.RequestedResources{CPU: "1"}) || d.Due("a", d.now) != 0 {
		t.Error("who is a consumer is not kept")
	}
}

// TestAllocatorAsked: an offer follows what is asked for, and not what is free above that.
func TestAllocatorAsked(t *testing.T) {
	d := newDesk(4000)
	d.asks["a"] = api.RequestedResources{CPU: "1500m"}
	d.join("a")
	d.expect(t, "asked from the start", "a:1500 ", 1)
	for _, free := range []int64{3000, 9000, 1600} {
		d.free(free)
		d.pass(time.Hour)
	}
	d.expect(t, "what is free moves above it", "a:1500 ", 1)
	if d.ask("a", "1500m") || !d.ask("a", "1550m") {
		t.Error("what is asked for is no news, or is all the time")
	}
	d.pass(gathers - time.Millisecond)
	d.expect(t, "a little more, a moment ago", "a:1500 ", 1)
	d.pass(time.Millisecond)
	d.expect(t, "a little more", "a:1550 ", 2)
	d.ask("a", "1")
	d.ask("a", "2")
	d.ask("a", "1")
	d.pass(time.Hour)
	d.expect(t, "to and fro", "a:1000 ", 3)
	d.free(500)
	d.pass(settles)
	d.expect(t, "less is free", "a:500 ", 4)
	d.free(4000)
	d.pass(settles)
	d.expect(t, "and more again", "a:1000 ", 5)
	d.ask("a", "")
	d.pass(gathers)
	d.expect(t, "as much as there is", "a:4000 ", 6)
	d.ask("a", "8")
	d.pass(time.Hour)
	d.expect(t, "more than there is", "a:4000 ", 6)
	// What others leave is promised to nobody.
	d.asks["b"] = api.RequestedResources{CPU: "100m"}
	d.join("b")
	d.pass(gathers)
	d.expect(t, "another one came", "a:2000 b:100 ", 8)
}

// TestBookManyConsumers has a hundred of them come, and counts what that costs.
func TestAllocatorManyConsumers(t *testing.T) {
	d := newDesk(100_000)
	for i := range 100 {
		d.join(peer.ClusterID(fmt.Sprintf("c%02d", i)))
		d.pass(2 * gathers)
	}
	for id, n := range d.writes {
		if n > 35 {
			t.Errorf("%s was told %d times", id, n)
		}
	}
}

func TestAllocatorUnknown(t *testing.T) {
	d := newDesk(0)
	d.pool = Pool{Free: Amounts{}}
	d.join("a")
	d.expect(t, "no node is ready yet", "", 0)
	if d.Why() == "" || d.Summary().Why == "" {
		t.Error("nobody is told why")
	}
	d.pass(settles - time.Second)
	d.expect(t, "still none", "", 0)
	d.pool = Pool{Nodes: 1, Free: Amounts{cpu: 1000}}
	d.measure()
	d.expect(t, "one is ready", "a:1000 ", 1)

	if !d.Unknown("No.") || d.Unknown("No.") || d.Why() != "No." {
		t.Error("that it is not known is no news, or is all the time")
	}
	d.look("a")
	d.look("b")
	d.pass(24 * time.Hour)
	d.expect(t, "not known", "a:1000 ", 1)
	d.measure()
	d.look("a")
	d.expect(t, "known again, and due", "a:1000 ", 2)

	never := newDesk(0)
	never.pool = Pool{Free: Amounts{}}
	never.join("a")
	never.pass(settles)
	if spec := never.has["a"]; spec == nil || len(spec.ResourceQuota.Hard) != 0 {
		t.Errorf("a cluster without a node that is ready never says so: %+v", spec)
	}
	if never.Offer("", "a", Prior{}, t0) != nil {
		t.Error("somebody without an ID offers something")
	}
}

func TestAllocatorRenews(t *testing.T) {
	d := newDesk(1000)
	at := map[time.Duration]int{}
	for i := range 100 {
		id := peer.ClusterID(fmt.Sprintf("peer-%d", i))
		d.join(id)
		d.pass(gathers)
	}
	for id := range d.has {
		first := d.has[id]
		if life := first.TimeToLive.Sub(first.Timestamp.Time); life != Life || first.ClusterID != string(self) {
			t.Fatalf("offer %+v", first)
		}
		due := d.Due(id, d.now)
		if due < renewal-spread-5*time.Minute || due > renewal {
			t.Fatalf("%s is due in %v", id, due)
		}
		at[due.Truncate(5*time.Minute)]++
		if d.Offer(self, id, Prior{}, d.now.Add(due-time.Second)) != first {
			t.Errorf("%s was made anew too early", id)
		}
		second := d.Offer(self, id, Prior{}, d.now.Add(due))
		if second == first || !second.Timestamp.After(first.Timestamp.Time) || d.Due(id, d.now.Add(due)) < renewal-spread {
			t.Errorf("%s was not made anew", id)
		}
	}
	if len(at) < 5 {
		t.Errorf("renewals are at %v", at)
	}
	// It tells what is so by then.
	d = newDesk(1000, "a")
	d.free(950)
	d.pass(renewal)
	d.expect(t, "renewed", "a:950 ", 2)
	// Who did not become a consumer is not told something old later.
	before := d.Offer(self, "z", Prior{}, d.now)
	if d.Offer(self, "z", Prior{}, d.now.Add(time.Second)) != before || d.Offer(self, "z", Prior{}, d.now.Add(time.Minute)) == before {
		t.Error("an offer that was never sent lives too long, or not at all")
	}
}

// TestBookOutlivesRestart: an offer that an earlier process made stays while it is
// good.
func TestAllocatorOutlivesRestart(t *testing.T) {
	earlier := newDesk(1000, "a").has["a"]
	for _, tc := range []struct {
		name  string
		after time.Duration
		prior func(*api.AdvertisementSpec)
		stays bool
	}{
		{"good", 3 * time.Hour, func(*api.AdvertisementSpec) {}, true},
		{"due", renewal, func(*api.AdvertisementSpec) {}, false},
		{"from the future", -time.Hour, func(*api.AdvertisementSpec) {}, false},
		{"a little less", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["cpu"] = "950m" }, true},
		{"written in another way", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["cpu"] = "1000m" }, true},
		{"more than a little", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["cpu"] = "2" }, false},
		{"another resource", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["a.example/gpu"] = "2" }, false},
		{"what is no resource", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["y"] = "2" }, false},
		{"another label", time.Hour, func(s *api.AdvertisementSpec) { s.Labels = map[string]string{"a": "b"} }, false},
		{"prices", time.Hour, func(s *api.AdvertisementSpec) { s.Prices = map[string]string{"a": "b"} }, false},
		{"not ours", time.Hour, func(s *api.AdvertisementSpec) { s.ClusterID = "x" }, false},
		{"more than asked for", time.Hour, func(s *api.AdvertisementSpec) { s.ResourceQuota.Hard["cpu"] = "1001m" }, false},
		{"edited", time.Hour, func(s *api.AdvertisementSpec) { s.TimeToLive = metav1.NewTime(t0.Add(99 * time.Hour)) }, false},
	} {
		prior := earlier.DeepCopy()
		tc.prior(&prior)
		d := newDesk(1000)
		d.now = t0.Add(tc.after)
		asked := api.RequestedResources{CPU: "1"}
		d.Admit("a", true, asked)
		if d.Offer(self, "a", Prior{Asked: asked, Unknown: true}, d.now) != nil {
			t.Errorf("%s: something is offered although nothing is known", tc.name)
		}
		d.Measure(d.pool, d.terms, d.now)
		if d.Offer(self, "a", Prior{Asked: asked, Unknown: true}, d.now) != nil {
			t.Errorf("%s: something is offered before the consumer said what it has", tc.name)
		}
		got := d.Offer(self, "a", Prior{Asked: asked, Spec: &prior}, d.now)
		if (got == &prior) != tc.stays {
			t.Errorf("%s: offered %+v", tc.name, got)
		}
		if changed, _ := d.Measure(d.pool, d.terms, d.now.Add(time.Hour)); len(changed) > 0 || d.Offer(self, "a", Prior{Asked: asked}, d.now) != got {
			t.Errorf("%s: it is made anew right after", tc.name)
		}
		if due := d.Due("a", d.now); tc.stays && due > renewal-tc.after {
			t.Errorf("%s: due in %v", tc.name, due)
		}
	}
}

// TestBookKeepsWord lets everything happen in any order. What consumers have is
// never far from what they would be offered, unless it is new; and nothing is
// written for less.
func TestAllocatorKeepsWord(t *testing.T) {
	ids := []peer.ClusterID{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(4000)
		d.terms.Hysteresis = rapid.IntRange(0, 30).Draw(t, "hysteresis")
		quiet := time.Duration(0) // since when nothing happened
		t.Repeat(map[string]func(*rapid.T){
			"free": func(t *rapid.T) {
				d.free(rapid.Int64Range(0, 8000).Draw(t, "amount"))
				quiet = 0
			},
			"ask": func(t *rapid.T) {
				id, asked := rapid.SampledFrom(ids).Draw(t, "who"), rapid.SampledFrom([]api.RequestedAmount{"", "1", "1050m", "3", "nonsense"}).Draw(t, "asked")
				if _, consumes := d.consumers[id]; consumes {
					d.ask(id, asked)
					quiet = 0
				}
			},
			"terms": func(t *rapid.T) {
				d.terms.Percentage, d.terms.Overcommit = rapid.IntRange(0, 100).Draw(t, "percentage"), rapid.IntRange(100, 300).Draw(t, "overcommit")
				d.measure()
				quiet = 0
			},
			"join": func(t *rapid.T) {
				if id := rapid.SampledFrom(ids).Draw(t, "who"); d.has[id] == nil {
					d.join(id)
					quiet = 0
				}
			},
			"leave": func(t *rapid.T) {
				if id := rapid.SampledFrom(ids).Draw(t, "who"); d.has[id] != nil {
					d.leave(id)
					quiet = 0
				}
			},
			"pass": func(t *rapid.T) {
				span := time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond
				before := maps.Clone(d.writes)
				d.pass(span)
				if quiet >= settles && span < time.Hour && !maps.Equal(before, d.writes) {
					t.Fatalf("written without news: %v, then %v", before, d.writes)
				}
				quiet += span
			},
			"": func(t *rapid.T) {
				if quiet < settles || len(d.consumers) == 0 {
					return
				}
				for id, asked := range d.consumers {
					split := Split{d.terms.Percentage, d.terms.Overcommit, len(d.consumers), asked}
					want := split.Of(d.pool.Free)
					if has := parseAll(d.has[id].ResourceQuota.Hard); want.differs(has, d.terms.Hysteresis) || split.bound(has) {
						t.Fatalf("%s has %v long after it became %v", id, has, want)
					}
				}
			},
		})
	})
}

// TestImagesAreTakenBack: who was told of an image from a registry that is off the list
// now is told anew, and nobody is because of more images.
func TestImagesAreTakenBack(t *testing.T) {
	image := func(name string) api.ContainerImage { return api.ContainerImage{Names: []string{name}} }
	d := newDesk(4000)
	d.pool.Registries = registry.List{Entries: []string{"docker.io", "ghcr.io"}}
	d.pool.Images = []api.ContainerImage{image("web:1"), image("ghcr.io/a/b:1")}
	d.join("a")
	d.pass(time.Minute)
	d.pool.Registries = registry.List{Entries: []string{"docker.io", "ghcr.io", registry.Own}, Own: []string{"registry.example.com"}}
	d.pool.Images = append(slices.Clone(d.pool.Images), image("registry.example.com/c:1"))
	d.measure()
	d.pass(time.Minute)
	d.expect(t, "with another registry", "a:4000 ", 1)
	d.pool.Registries, d.pool.Images = registry.List{Entries: []string{"docker.io"}}, []api.ContainerImage{image("web:1")}
	before := d.has["a"]
	d.measure()
	d.pass(time.Minute)
	d.expect(t, "without a registry", "a:4000 ", 2)
	if got := d.has["a"].Images; len(got) != 1 || got[0].Names[0] != "web:1" {
		t.Errorf("it is told of %v", got)
	}
	for _, prior := range []*api.AdvertisementSpec{before, d.has["a"]} {
		fresh := NewAllocator()
		fresh.Admit("a", true, api.RequestedResources{})
		fresh.Measure(d.pool, d.terms, d.now)
		if got := fresh.Offer(self, "a", Prior{Spec: prior}, d.now); len(got.Images) != 1 || (got == prior) != (prior != before) {
			t.Errorf("of an earlier process' offer with %v becomes one with %v", prior.Images, got.Images)
		}
	}
}
