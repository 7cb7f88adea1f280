package health

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer/text"
)

// MaxInstances bounds the problems of one kind that a Tracker keeps: others can cause
// some of them, a thousand neighbours a thousand. What is beyond is left out until
// there is room.
const MaxInstances = 32

// maxText bounds what an argument adds, in bytes: errors can be long, and some of
// them come from others.
const maxText = 500

// Problem is something that is the matter now.
type Problem struct {
	Kind *Kind
	// About tells several problems of one kind apart, such as the ID of a peer; ""
	// where there is only one.
	About string
	// Text and Remedy are those of the Kind with the arguments in place. They may
	// contain what others on the network said.
	Text, Remedy string
	// Since is when it began.
	Since time.Time
}

// Finding is what somebody sees.
type Finding struct {
	// About tells several of one kind apart; "" where there is only one.
	About string
	// Args are what the texts of the kind name.
	Args Args
	// Since is when it began; zero means when the Tracker was told first.
	Since time.Time
}

// Tracker keeps what is the matter. The zero value is ready for use. Its methods may
// be called from any goroutine, and none blocks.
type Tracker struct {
	mu      sync.Mutex
	found   map[*Kind]map[string]*Problem
	told    map[key]Problem // what Update returned as begun
	changed chan struct{}   // capacity 1; nil until somebody asks
}

type key struct {
	kind  *Kind
	about string
}

// Set says that a problem is there. Saying it again changes the arguments only: it
// began when it was first said.
func (t *Tracker) Set(k *Kind, f Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(k, f)
}

func (t *Tracker) set(k *Kind, f Finding) {
	next := Problem{Kind: k, About: f.About, Text: fillBounded(k.Text, f.Args), Remedy: fillBounded(k.Remedy, f.Args), Since: f.Since}
	old := t.found[k][f.About]
	if old == nil && len(t.found[k]) >= MaxInstances {
		return
	}
	switch {
	case !next.Since.IsZero():
	case old != nil:
		next.Since = old.Since
	default:
		next.Since = time.Now()
	}
	if old != nil && old.Text == next.Text && old.Remedy == next.Remedy && old.Since.Equal(next.Since) {
		return
	}
	if t.found == nil {
		t.found = make(map[*Kind]map[string]*Problem)
	}
	if t.found[k] == nil {
		t.found[k] = make(map[string]*Problem)
	}
	t.found[k][f.About] = &next
	t.wake()
}

// Clear says that a problem is not there, or no longer.
func (t *Tracker) Clear(k *Kind, about string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear(k, about)
}

func (t *Tracker) clear(k *Kind, about string) {
	if _, there := t.found[k][about]; !there {
		return
	}
	delete(t.found[k], about)
	t.wake()
}

// Report says that there is a problem because of an error, the only argument of its
// kind; nil says that there is none.
func (t *Tracker) Report(k *Kind, err error) {
	if err == nil {
		t.Clear(k, "")
		return
	}
	t.Set(k, Finding{Args: Args{"error": err.Error()}})
}

// When sets a problem that there is once, or clears it.
func (t *Tracker) When(k *Kind, is bool, args Args) {
	if is {
		t.Set(k, Finding{Args: args})
	} else {
		t.Clear(k, "")
	}
}

// Replace says that these problems of a kind are there, and no others.
func (t *Tracker) Replace(k *Kind, findings ...Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := make(map[string]bool, len(findings))
	for _, f := range findings {
		keep[f.About] = true
	}
	for about := range t.found[k] {
		if !keep[about] {
			t.clear(k, about)
		}
	}
	for _, f := range findings {
		t.set(k, f)
	}
}

// Current returns what is the matter and has lasted for its grace: errors before
// warnings, then in the order of All, then by what they are about.
func (t *Tracker) Current() []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, _ := t.current(time.Now())
	return out
}

// current returns also when the grace of the next one ends, zero for none.
func (t *Tracker) current(now time.Time) (out []Problem, next time.Time) {
	for kind, all := range t.found {
		for _, p := range all {
			switch due := p.Since.Add(kind.Grace); {
			case !due.After(now):
				out = append(out, *p)
			case next.IsZero() || due.Before(next):
				next = due
			}
		}
	}
	place := make(map[*Kind]int, len(all))
	for i, k := range all {
		place[k] = i
	}
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind.Severity.rank(), b.Kind.Severity.rank()), cmp.Compare(place[a.Kind], place[b.Kind]),
			cmp.Compare(a.About, b.About))
	})
	return out, next
}

// Pending reports whether something is the matter that is not shown yet and will be
// within d if it lasts.
func (t *Tracker) Pending(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	_, next := t.current(now)
	return !next.IsZero() && next.Before(now.Add(d))
}

// Update returns which problems are shown since the last call and which are not any
// more, in the order of Current, and when the grace of the next one ends: zero for
// none. There is one who calls it: two would each learn of a part only.
func (t *Tracker) Update() (began, ended []Problem, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown, next := t.current(time.Now())
	there := make(map[key]bool, len(shown))
	for _, p := range shown {
		k := key{p.Kind, p.About}
		there[k] = true
		if _, told := t.told[k]; !told {
			began = append(began, p)
		}
		if t.told == nil {
			t.told = make(map[key]Problem)
		}
		t.told[k] = p
	}
	for k, p := range t.told {
		if !there[k] {
			ended = append(ended, p)
			delete(t.told, k)
		}
	}
	slices.SortFunc(ended, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind.Code, b.Kind.Code), cmp.Compare(a.About, b.About))
	})
	return began, ended, next
}

// Changed returns a channel that has an element after something was set or cleared.
// Everybody gets the same channel. That a grace ends is not told: see Update.
func (t *Tracker) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{}, 1)
		t.changed <- struct{}{} // what was set before
	}
	return t.changed
}

func (t *Tracker) wake() {
	if t.changed == nil {
		return
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// fillBounded fills a template with bounded arguments.
func fillBounded(template string, args Args) string {
	bounded := make(Args, len(args))
	for name, value := range args {
		bounded[name] = text.Clip(value, maxText)
	}
	return fill(template, bounded)
}
