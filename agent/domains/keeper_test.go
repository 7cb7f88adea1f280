package domains

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// bed is a Keeper and all that it needs, in memory. It keeps what the Keeper does.
type bed struct {
	*Keeper
	loaded     *config.Loaded
	added      []state.SearchDomain
	broken     error // of the store
	reports    map[string]dnssd.Report
	candidates map[peer.Key]registry.CandidateStatus
	peers      map[peer.ClusterID]peer.Peer
	policies   map[peer.ClusterID]plan.Policy
	outgoing   map[peer.ClusterID]plan.Direction

	mu  sync.Mutex // Run does things in a goroutine of its own
	did []string
}

func newBed() *bed {
	b := &bed{
		loaded: configured(), reports: make(map[string]dnssd.Report), candidates: make(map[peer.Key]registry.CandidateStatus),
		peers: make(map[peer.ClusterID]peer.Peer), policies: make(map[peer.ClusterID]plan.Policy), outgoing: make(map[peer.ClusterID]plan.Direction),
	}
	b.Keeper = New(NewSet(), Config{
		Self:   func() peer.Identity { return peer.Identity{ClusterID: "self", ClusterName: "home"} },
		Loaded: func() *config.Loaded { return b.loaded },
		Store:  b, Poller: b, Registry: b, Decisions: b, Peering: b,
		Merged: func(context.Context) { b.do("merged") },
		Now:    func() time.Time { return epoch },
	})
	return b
}

func (b *bed) do(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.did = append(b.did, fmt.Sprintf(format, args...))
}

// deeds returns what was done since the last deeds.
func (b *bed) deeds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	did := b.did
	b.did = nil
	return did
}

func (b *bed) SearchDomains(context.Context) ([]state.SearchDomain, error) { return b.added, b.broken }

func (b *bed) SetSearchDomain(_ context.Context, d state.SearchDomain, events ...peer.Event) error {
	b.do("store %s, %s", d.Domain, events[0].Kind)
	b.added = append(b.without(d.Domain), d)
	return b.broken
}

func (b *bed) RemoveSearchDomain(_ context.Context, domain string, events ...peer.Event) (bool, error) {
	rest := b.without(domain)
	known := len(rest) < len(b.added)
	if b.added = rest; known {
		b.do("remove %s, %s", domain, events[0].Kind)
	}
	return known, b.broken
}

func (b *bed) without(domain string) []state.SearchDomain {
	return slices.DeleteFunc(slices.Clone(b.added), func(d state.SearchDomain) bool { return d.Domain == domain })
}

func (b *bed) SetDomains(domains []dnssd.Domain) {
	var names []string
	for _, d := range domains {
		names = append(names, d.Name)
	}
	b.do("look in %s", strings.Join(names, " "))
}

func (b *bed) Last(domain string) (dnssd.Report, bool) {
	r, found := b.reports[domain]
	return r, found
}

func (b *bed) Ask(domain string) bool { return domain != "late.example" }

func (b *bed) SetCandidate(c registry.Candidate) { b.do("set %s at %s", c.Key().Instance, c.URL) }

func (b *bed) DropCandidate(k peer.Key, why registry.Absence) {
	b.do("drop %s of %s: %v", k.Instance, k.Domain, why.Evidence)
}

func (b *bed) Candidate(k peer.Key) (registry.CandidateStatus, bool) {
	s, found := b.candidates[k]
	return s, found
}

func (b *bed) Peer(id peer.ClusterID) (peer.Peer, bool) {
	p, found := b.peers[id]
	return p, found
}

func (b *bed) Policy(id peer.ClusterID) plan.Policy { return b.policies[id] }

func (b *bed) View(id peer.ClusterID) plan.View { return plan.View{Outgoing: b.outgoing[id]} }

func (b *bed) SearchDomainChanged(name string) { b.do("show %s", name) }

func (b *bed) merged(t *testing.T) {
	t.Helper()
	if err := b.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.deeds()
}

func expect(t *testing.T, b *bed, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.deeds()); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

func lists(names ...string) dnssd.Report {
	r := dnssd.Report{Domain: "a.example", At: epoch, Outcome: resolver.Found, Complete: true}
	for _, name := range names {
		r.Instances = append(r.Instances, dnssd.Instance{Name: name, URL: "https://" + name + ":6447"})
	}
	return r
}

// What a domain lists becomes candidates, and what it lists no longer is taken back:
// as withdrawn, or as expired when its name is still there without what it needs.
func TestLooked(t *testing.T) {
	b := newBed()
	b.Looked(lists("x"))
	expect(t, b, "nobody looks there")
	b.added = []state.SearchDomain{added("a.example")}
	b.merged(t)
	b.Looked(lists("x", "y"))
	expect(t, b, "both are new", "set x at https://x:6447", "set y at https://y:6447")
	b.Looked(lists("y"))
	expect(t, b, "one has left", fmt.Sprintf("drop x of a.example: %v", registry.Withdrawn), "set y at https://y:6447")
	r := lists()
	r.Skipped = []dnssd.Skip{{Name: "y", Reason: dnssd.SkipNoAddress}, {Name: "z", Reason: dnssd.SkipNoService}}
	b.Looked(r)
	expect(t, b, "one has no address", fmt.Sprintf("drop y of a.example: %v", registry.Expired))
	b.Looked(lists("y"))
	b.deeds()
	b.added = nil
	if err := b.merge(t.Context()); err != nil {
		t.Error(err)
	}
	// By which domain a host counts is decided before anything is found there.
	expect(t, b, "nobody looks there any more", "merged", "look in ", fmt.Sprintf("drop y of a.example: %v", registry.Withdrawn))
	b.Looked(lists("y"))
	expect(t, b, "the look that was under way")
}

// What domains led to when the last run ended is taken back when they are looked in and do
// not list it, or are not looked in any more. It takes all places that name domains to know
// the latter.
func TestSeenInTheLastRun(t *testing.T) {
	seen := func(domain, name string) peer.Sighting {
		return peer.Sighting{Source: peer.WAN, Domain: domain, Instance: name, URL: "https://" + name + ":6447", ClusterID: "c", Fingerprint: peer.Fingerprint{1}}
	}
	start := func() *bed {
		b := newBed()
		cfg := b.cfg
		cfg.Seen = []peer.Sighting{seen("a.example", "x"), seen("a.example", "y"), seen("gone.example", "z"), {Source: peer.LAN, Instance: "c"}}
		b.Keeper = New(NewSet(), cfg)
		b.added = []state.SearchDomain{added("a.example")}
		return b
	}
	const drop = "drop %s of %s: %v"
	taken := fmt.Sprintf(drop, "z", "gone.example", registry.Withdrawn)
	b := start()
	b.set.Tell(nil)
	if err := b.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "all domains are known", "merged", "look in a.example", taken)
	want := []dnssd.Instance{{Name: "x", URL: "https://x:6447", ID: "c", Fingerprint: peer.Fingerprint{1}}, {Name: "y", URL: "https://y:6447", ID: "c", Fingerprint: peer.Fingerprint{1}}}
	if diff := cmp.Diff(want, b.Recall("a.example")); diff != "" {
		t.Error(diff)
	}
	if got := append(b.Recall("a.example"), b.Recall("gone.example")...); len(got) > 0 {
		t.Errorf("recalled twice, or after it was taken back: %v", got)
	}
	b.Looked(lists("y"))
	expect(t, b, "one has left", fmt.Sprintf(drop, "x", "a.example", registry.Withdrawn), "set y at https://y:6447")
	if err := b.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "once is enough", "merged", "look in a.example")

	b = start()
	b.merged(t)
	if err := b.RemoveDomain(t.Context(), "a.example", ""); err != nil {
		t.Fatal(err)
	}
	did := b.deeds()
	slices.Sort(did)
	if diff := cmp.Diff([]string{fmt.Sprintf(drop, "x", "a.example", registry.Withdrawn), fmt.Sprintf(drop, "y", "a.example", registry.Withdrawn),
		"look in ", "merged", "remove a.example, domain-removed"}, did); diff != "" {
		t.Errorf("removed before it was looked in; the other one may be in the API server:\n%s", diff)
	}

	b = start()
	b.loaded.Config.Cluster.Kubeconfig = conn.KubeconfigNone
	if err := b.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "there is no API server", "merged", "look in a.example", taken)
}

// Who adds, changes, removes or refreshes a domain on the command line is refused what
// other places have the last word about.
func TestCommandLine(t *testing.T) {
	add := func(name string, change ...func(*control.DomainOptions)) func(b *bed) error {
		opts := control.DomainOptions{Name: name, By: "alice"}
		for _, c := range change {
			c(&opts)
		}
		return func(b *bed) error { return b.AddDomain(context.Background(), opts) }
	}
	remove := func(name string) func(b *bed) error {
		return func(b *bed) error { return b.RemoveDomain(context.Background(), name, "alice") }
	}
	refresh := func(name string) func(b *bed) error {
		return func(b *bed) error { return b.AskDomain(context.Background(), name) }
	}
	const before = "file.example line.example object.example"
	for _, tc := range []struct {
		name string
		do   func(b *bed) error
		kind error
		did  []string
	}{
		{"add", add("A.Example."), nil, []string{"store a.example, domain-added", "merged", "look in a.example " + before}},
		{"change", add("line.example"), nil, []string{"store line.example, domain-added", "merged", "look in " + before}},
		{"add what is no domain", add("https://a.example"), control.ErrInvalid, nil},
		{"add with a bad server", add("a.example", func(o *control.DomainOptions) { o.Server = "https://192.0.2.1" }), control.ErrInvalid, nil},
		{"add with bad intervals", add("a.example", func(o *control.DomainOptions) { o.MinInterval, o.MaxInterval = time.Hour, time.Minute }), control.ErrInvalid, nil},
		{"add what the file has", add("file.example"), control.ErrRefused, nil},
		{"add what an object has", add("Object.example"), control.ErrRefused, nil},
		{"remove", remove("line.example"), nil, []string{"remove line.example, domain-removed", "merged", "look in file.example object.example"}},
		{"remove what the file has", remove("file.example"), control.ErrRefused, nil},
		{"remove what an object has", remove("object.example"), control.ErrRefused, nil},
		{"remove what is unknown", remove("a.example"), control.ErrNotFound, nil},
		{"refresh", refresh("file.example"), nil, nil},
		{"refresh what is unknown", refresh("a.example"), control.ErrNotFound, nil},
		{"refresh what nobody looks in yet", refresh("late.example"), control.ErrNotFound, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed()
			b.set.Tell([]api.SearchDomain{object("o", "object.example", 0)})
			b.loaded = configured(config.SearchDomain{Domain: "file.example"})
			b.added = []state.SearchDomain{added("line.example")}
			b.merged(t)
			err := tc.do(b)
			var known *control.Error
			if !errors.Is(err, tc.kind) || err != nil && (!errors.As(err, &known) || known.Message == "") {
				t.Errorf("%v, want %v", err, tc.kind)
			}
			expect(t, b, "done", tc.did...)
		})
	}
}

// What cannot be stored or read is told to whoever asked.
func TestStoreFails(t *testing.T) {
	b := newBed()
	b.broken = errors.New("the disk is full")
	for what, err := range map[string]error{
		"add": b.AddDomain(t.Context(), control.DomainOptions{Name: "a.example"}), "remove": b.RemoveDomain(t.Context(), "a.example", ""), "run": b.Run(t.Context()),
	} {
		if !errors.Is(err, b.broken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.merge(ctx); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestEntries: what is known about each place that a domain lists.
func TestEntries(t *testing.T) {
	b := newBed()
	b.added = []state.SearchDomain{added("a.example"), added("new.example")}
	b.set.Tell([]api.SearchDomain{object("o", "object.example", 0)})
	b.merged(t)
	r := lists("away", "joined", "listed", "mine", "told", "wanted")
	r.Skipped = []dnssd.Skip{{Name: "broken", Reason: dnssd.SkipBadTXT, Message: "no version"}}
	b.reports["a.example"] = r
	b.reports["object.example"] = dnssd.Report{Domain: "object.example", Outcome: resolver.Timeout, Message: "no answer"}
	for name, s := range map[string]registry.CandidateStatus{
		"away": {Reason: registry.Unreachable, Message: "nobody answers"}, "joined": {ID: "j"}, "mine": {Reason: registry.ThisCluster, Message: "give another"},
		"told": {ID: "t", ClusterName: "tower"}, "wanted": {ID: "w"},
	} {
		b.candidates[keyOf("a.example", name)] = s
	}
	b.policies["t"] = plan.Policy{NotAutojoined: plan.NotAutojoined{Reason: "KeyNotTrusted", Message: "its key is not trusted"}}
	b.outgoing["t"] = plan.Direction{Wanted: true, Message: "not this"}
	b.outgoing["w"] = plan.Direction{Wanted: true, Message: "waits for the provider"}
	b.outgoing["j"] = plan.Direction{Wanted: true, Joined: true, Message: "joined"}

	views, err := b.Domains(t.Context())
	if err != nil || len(views) != 3 {
		t.Fatalf("%+v, %v", views, err)
	}
	var got []string
	for _, e := range views[0].Entries {
		if e.Reason == string(registry.NotProbed) || e.Reason == string(registry.ThisCluster) {
			e.Message = "" // whatever the words
		}
		got = append(got, fmt.Sprintf("%s %q %q %q %q", e.Name, e.ClusterID, e.Cluster, e.Reason, e.Message))
	}
	if diff := cmp.Diff([]string{
		`away "" "" "Unreachable" "nobody answers"`, `broken "" "" "BadTXT" "no version"`, `joined "j" "" "" ""`, `listed "" "" "NotAskedYet" ""`,
		`mine "self" "home" "ThisCluster" ""`, `told "t" "tower" "" "its key is not trusted"`, `wanted "w" "" "" "waits for the provider"`,
	}, got); diff != "" {
		t.Error(diff)
	}
	// Lists are empty, and not missing, before the first look.
	if v := views[1]; v.Name != "new.example" || v.Outcome != "" || v.Entries == nil || v.Browsed == nil || v.Ignored == nil {
		t.Errorf("%+v", v)
	}
	if diff := cmp.Diff(map[string]int{"": 1, "Found": 1, "Timeout": 1}, b.Outcomes()); diff != "" {
		t.Error(diff)
	}
	if all := b.Reports(); len(all) != 2 || all[0].Domain != "a.example" || all[1].Domain != "object.example" {
		t.Errorf("%+v", all)
	}
	sums := b.Summary()
	if len(sums) != 3 || sums[0].Clusters != 3 || sums[0].Message != "" || sums[1].Outcome != "" || sums[2].Outcome != "Timeout" || sums[2].Message != "no answer" {
		t.Errorf("%+v", sums)
	}
	if s, known := b.Status("o"); !known || !slices.Contains(conditions(s), "Resolved=False/Timeout") {
		t.Errorf("%+v, %t", s, known)
	}
}

// The status of a SearchDomain says nothing while nothing is known, and why it has no
// effect when it has none.
func TestStatus(t *testing.T) {
	b := newBed()
	b.set.Tell([]api.SearchDomain{object("first", "a.example", 0), object("second", "a.example", 1)})
	if _, known := b.Status("first"); known {
		t.Error("known before the set is made")
	}
	b.merged(t)
	if _, known := b.Status("first"); known {
		t.Error("known before the first look")
	}
	if s, known := b.Status("second"); !known || !slices.Equal(conditions(s), []string{"Ignored=True/NoEffect"}) || !strings.Contains(s.Conditions[0].Message, "SearchDomain first") {
		t.Errorf("%+v, %t", s, known)
	}
	b.reports["a.example"] = lists()
	if s, known := b.Status("first"); !known || s.LastQuery == nil {
		t.Errorf("%+v, %t", s, known)
	}
	if _, known := b.Status("third"); known {
		t.Error("an object that is not there has a status")
	}
}

// Why a cluster is not joined is shown by the objects of the domains that list it,
// once; many news are one change of the status.
func TestRunShowsNews(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed()
		b.set.Tell([]api.SearchDomain{object("o", "a.example", 0)})
		done := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- b.Run(ctx) }()
		after := func(wait time.Duration, what string, want ...string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			expect(t, b, what, want...)
		}
		after(1, "at the start", "merged", "look in a.example", "show o")
		for i := range 100 {
			b.Probed(keyOf("a.example", fmt.Sprint("box-", i)))
		}
		after(statusPause-1, "more news may follow")
		after(1, "the news", "show o")
		for begun := time.Now(); time.Since(begun) < statusPatience; time.Sleep(statusPause / 2) {
			b.Probed(keyOf("a.example", "box-1")) // it never ends
		}
		after(1, "news without a pause", "show o")
		after(time.Hour, "the end of them")
		b.peers["p"] = peer.Peer{ID: "p", Domains: []string{"a.example"}}
		b.policies["p"] = plan.Policy{NotAutojoined: plan.NotAutojoined{Message: "its key is not trusted"}}
		b.Remark("p")
		after(statusPause, "a remark", "show o")
		b.Remark("p")
		b.Remark("unknown")
		b.Probed(peer.Key{Source: peer.Manual, Instance: "a"})
		after(time.Hour, "no news")
		b.set.Tell(nil)
		after(1, "the object goes", "merged", "look in ")
		b.loaded = configured(config.SearchDomain{Domain: "file.example"})
		b.Again()
		after(1, "a reload", "merged", "look in file.example")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
