package domains

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

var epoch = time.Date(2026, 11, 4, 10, 0, 0, 0, time.UTC)

// object is a SearchDomain that was created so many seconds after the epoch.
func object(name, domain string, second int) api.SearchDomain {
	o := api.SearchDomain{Spec: api.SearchDomainSpec{Domain: domain}}
	o.Name, o.UID, o.CreationTimestamp = name, types.UID("uid-"+name), metav1.NewTime(epoch.Add(time.Duration(second)*time.Second))
	return o
}

// configured is a configuration with search domains, in the lines of a file.
func configured(domains ...config.SearchDomain) *config.Loaded {
	l := &config.Loaded{Config: config.Config{SearchDomains: domains}, Sources: map[string]string{}}
	for i := range domains {
		l.Sources[fmt.Sprintf("search_domain[%d]", i)] = fmt.Sprint("file line ", i+1)
	}
	return l
}

func added(domain string) state.SearchDomain {
	return state.SearchDomain{Domain: domain, MinInterval: time.Minute, MaxInterval: time.Hour, By: "user alice (command line)"}
}

// Of all places that give a domain, the first counts: the oldest SearchDomain, the
// configuration file, the command line.
func TestMerge(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []api.SearchDomain
		file    []config.SearchDomain
		stored  []state.SearchDomain
		want    []string // domain < source, and sources that have no effect
		useless []types.UID
	}{
		{"nothing", nil, nil, nil, nil, nil},
		{
			"each place", []api.SearchDomain{object("o", "c.example", 0)}, []config.SearchDomain{{Domain: "b.example"}}, []state.SearchDomain{added("a.example")},
			[]string{"a.example < command line (user alice)", "b.example < file line 1", "c.example < SearchDomain o"}, nil,
		},
		{
			"precedence", []api.SearchDomain{object("o", "a.example", 0)}, []config.SearchDomain{{Domain: "a.example"}}, []state.SearchDomain{added("a.example")},
			[]string{"a.example < SearchDomain o, file line 1, command line (user alice)"}, nil,
		},
		{
			"the file before the command line", nil, []config.SearchDomain{{Domain: "b.example"}, {Domain: "a.example"}}, []state.SearchDomain{added("a.example")},
			[]string{"a.example < file line 2, command line (user alice)", "b.example < file line 1"}, nil,
		},
		{
			"the oldest object", []api.SearchDomain{object("new", "a.example", 2), object("old", "a.example", 1)}, nil, nil,
			[]string{"a.example < SearchDomain old, SearchDomain new"}, []types.UID{"uid-new"},
		},
		{
			"of one age by name", []api.SearchDomain{object("y", "a.example", 1), object("x", "a.example", 1)}, nil, nil,
			[]string{"a.example < SearchDomain x, SearchDomain y"}, []types.UID{"uid-y"},
		},
		{
			"one domain in two spellings", []api.SearchDomain{object("o", "A.Example.", 0)}, nil, []state.SearchDomain{added("a.example")},
			[]string{"a.example < SearchDomain o, command line (user alice)"}, nil,
		},
		{
			"an object that says nothing of use leaves the domain to others",
			[]api.SearchDomain{object("bad", "no domain", 0), func() api.SearchDomain {
				o := object("short", "a.example", 1)
				o.Spec.MinIntervalSeconds, o.Spec.MaxIntervalSeconds = 60, 30
				return o
			}()}, nil, []state.SearchDomain{added("a.example")},
			[]string{"a.example < command line (user alice)"}, []types.UID{"uid-bad", "uid-short"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewSet()
			d.Tell(tc.objects)
			looked, dropped := d.merge(configured(tc.file...), tc.stored)
			var got, names []string
			for _, one := range d.all() {
				got = append(got, one.Domain+" < "+strings.Join(append([]string{one.source}, one.ignored...), ", "))
			}
			for _, one := range looked {
				if names = append(names, one.Name); one.MinInterval <= 0 || one.MaxInterval < one.MinInterval {
					t.Errorf("%s is looked in every %s to %s", one.Name, one.MinInterval, one.MaxInterval)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if all := d.Names(); len(dropped) != 0 || !slices.IsSorted(names) || len(names) != len(all) || all == nil {
				t.Errorf("looks in %q of %q, dropped %q", names, all, dropped)
			}
			for _, o := range tc.objects {
				uid, domain, useless := d.behind(o.Name)
				if uid != o.UID || (useless != "") != slices.Contains(tc.useless, uid) || (domain == "") != (useless != "") {
					t.Errorf("behind %s: %q, %q, %q", o.Name, uid, domain, useless)
				}
			}
			// Made once more of the same, it is the same.
			if again, dropped := d.merge(configured(tc.file...), tc.stored); !cmp.Equal(again, looked) || len(dropped) != 0 {
				t.Errorf("once more: looks in %v, dropped %v", again, dropped)
			}
		})
	}
}

// What a domain says about joining is its own only where somebody said so.
func TestAutojoins(t *testing.T) {
	yes := true
	d := NewSet()
	o := object("o", "object.example", 0)
	o.Spec.Autojoin = &yes
	silent := object("silent", "silent.example", 0)
	no := added("line.example")
	no.Autojoin = new(bool)
	d.Tell([]api.SearchDomain{o, silent})
	d.merge(configured(config.SearchDomain{Domain: "file.example", Autojoin: true}), []state.SearchDomain{no, added("as-is.example")})
	want := map[string]bool{"object.example": true, "file.example": true, "line.example": false}
	if diff := cmp.Diff(want, d.Autojoins()); diff != "" {
		t.Error(diff)
	}
}

// Before the API server has said which SearchDomains there are, the set is used, and
// not complete.
func TestSetIsIncomplete(t *testing.T) {
	d := NewSet()
	if looked, _ := d.merge(configured(), []state.SearchDomain{added("a.example")}); len(looked) != 1 || d.Names() != nil {
		t.Errorf("looks in %v; names %q", looked, d.Names())
	}
	d.Tell(nil)
	if d.Names() != nil {
		t.Error("it is complete before it was made anew")
	}
	if d.merge(configured(), nil); d.Names() == nil || len(d.Names()) != 0 {
		t.Errorf("names %q", d.Names())
	}
}

// What a domain lists is known until it lists something else, or is dropped.
func TestListed(t *testing.T) {
	keys := func(names ...string) map[peer.Key]struct{} {
		out := make(map[peer.Key]struct{})
		for _, name := range names {
			out[keyOf("a.example", name)] = struct{}{}
		}
		return out
	}
	names := func(keys []peer.Key) string {
		var out []string
		for _, k := range keys {
			out = append(out, k.Instance)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	d := NewSet()
	if gone, known := d.list("a.example", keys("x")); known || gone != nil {
		t.Errorf("nobody looks there: %v", gone)
	}
	stored := []state.SearchDomain{added("a.example")}
	d.merge(configured(), stored)
	for _, step := range []struct{ now, gone string }{{"x y", ""}, {"x y", ""}, {"y z", "x"}, {"", "y z"}, {"x y", ""}} {
		if gone, known := d.list("a.example", keys(strings.Fields(step.now)...)); !known || names(gone) != step.gone {
			t.Errorf("lists %q: gone are %q, want %q", step.now, names(gone), step.gone)
		}
	}
	if gone := d.drop("a.example"); gone != nil {
		t.Errorf("dropped while it is looked in: %v", gone)
	}
	if _, dropped := d.merge(configured(), nil); !slices.Equal(dropped, []string{"a.example"}) {
		t.Errorf("dropped %q", dropped)
	}
	if gone := names(d.drop("a.example")); gone != "x y" {
		t.Errorf("gone are %q", gone)
	}
	if gone := d.drop("a.example"); len(gone) != 0 {
		t.Errorf("gone twice: %v", gone)
	}
}

// SearchDomains are shown when there is something new about them; those that have no
// effect, always.
func TestObjectsToShow(t *testing.T) {
	d := NewSet()
	d.Tell([]api.SearchDomain{object("a", "a.example", 0), object("b", "b.example", 0), object("useless", "b.example", 1)})
	d.merge(configured(), []state.SearchDomain{added("line.example")})
	show := func() string {
		all := d.objectsToShow()
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"made", func() {}, "a b useless"},
		{"nothing", func() {}, "useless"},
		{"news", func() { d.note("a.example"); d.note("a.example") }, "a useless"},
		{"of a domain that no object gives, and of an unknown one", func() { d.note("line.example"); d.note("x.example") }, "useless"},
		{"a remark", func() { d.remark("id", "its key is not trusted", []string{"a.example", "b.example"}) }, "a b useless"},
		{"the same", func() { d.remark("id", "its key is not trusted", []string{"a.example", "b.example"}) }, "useless"},
		{"another", func() { d.remark("id", "it is away", []string{"b.example"}) }, "b useless"},
		{"none any more", func() { d.remark("id", "", []string{"b.example"}) }, "b useless"},
		{"none", func() { d.remark("id", "", []string{"b.example"}) }, "useless"},
	} {
		step.do()
		if got := show(); got != step.want {
			t.Errorf("%s: shown are %q, want %q", step.what, got, step.want)
		}
	}
}

// An object that was replaced by one of its name is another one, and what the old
// one showed is forgotten.
func TestObjectIsReplaced(t *testing.T) {
	d := NewSet()
	old := object("o", "a.example", 0)
	d.Tell([]api.SearchDomain{old})
	d.merge(configured(), nil)
	d.show(old.UID, func(api.SearchDomainStatus) api.SearchDomainStatus { return api.SearchDomainStatus{Clusters: 7} })
	replaced := object("o", "b.example", 1)
	replaced.UID = "other"
	d.Tell([]api.SearchDomain{replaced})
	if uid, domain, useless := d.behind("o"); uid != "other" || domain != "" || useless != "" {
		t.Errorf("before the set knows it: %q, %q, %q", uid, domain, useless)
	}
	d.merge(configured(), nil)
	if uid, domain, _ := d.behind("o"); uid != "other" || domain != "b.example" {
		t.Errorf("%q, %q", uid, domain)
	}
	if _, there := d.shown[old.UID]; there {
		t.Error("what the old one showed is kept")
	}
	if uid, domain, useless := d.behind("nowhere"); uid != "" || domain != "" || useless != "" {
		t.Errorf("of no object: %q, %q, %q", uid, domain, useless)
	}
}
