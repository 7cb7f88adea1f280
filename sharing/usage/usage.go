package usage

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// freshFor is how long a measurement holds: less than scrapers wait from one time to
	// the next, of which metrics-server is mostly the quickest with 15 seconds.
	freshFor = 10 * time.Second
	// silentFor is how long a provider is left alone that answers with no metrics at all.
	silentFor = 30 * time.Second
	// refusedFor is how long one is that refuses to answer: an older agent, which notes each
	// attempt in its log, or one whose rights are older.
	refusedFor = 10 * time.Minute
	// measureIn bounds a measurement. Scrapers wait ten seconds.
	measureIn = 5 * time.Second
	// atOnce is how many namespaces of one provider are asked about at the same time.
	atOnce = 8
)

// Node is a virtual node, as far as it matters here.
type Node struct {
	// Remote leads to the API server of the provider. Requests have the paths of an API
	// server, and any host. It is compared with ==.
	Remote http.RoundTripper
	// Guests are the pods of this cluster that run there, by the provider's namespaces, in
	// which they have the same names. They are not changed.
	Guests map[string][]*corev1.Pod
}

// Config is what a Usage works with. Its functions are called from any goroutine and must
// be quick.
type Config struct {
	// Node returns a virtual node by name, false if there is none.
	Node func(name string) (Node, bool)
	// Names returns the names of all virtual nodes.
	Names  func() []string
	Logger *slog.Logger
	Now    func() time.Time // time.Now if nil
}

// Report is what the pods of a node use.
type Report struct {
	Node string
	Time time.Time // of the measurement, by this cluster's clock
	// Whole is whether Total is that of all pods: the provider answered about each
	// namespace. Total is unset otherwise.
	Whole bool
	Total Amount
	Pods  []Pod // those of which the provider says what they use, sorted by namespace and name
}

// Amount is what is used.
type Amount struct {
	Since   time.Time // when Seconds was 0
	Seconds float64   // of CPU time; it grows until there is another Since
	Cores   float64   // CPU time in a second, now
	Memory  float64   // bytes of the working set, now
}

// Pod is what a pod uses.
type Pod struct {
	Namespace, Name string    // in this cluster
	UID             types.UID // the same
	Started         time.Time // the zero time if that is not known
	Containers      []Container
}

// Container is what a container uses.
type Container struct {
	Name string
	Amount
}

// Usage measures what the pods of virtual nodes use. Its methods may be called from any
// goroutine.
type Usage struct {
	cfg Config

	mu    sync.Mutex
	nodes map[string]*meter
}

// New returns a Usage that has measured nothing.
func New(cfg Config) *Usage {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Usage{cfg: cfg, nodes: make(map[string]*meter)}
}

// Node returns what the pods of a virtual node use; false if there is no such node. A
// provider that does not answer takes some seconds, and there are no pods then.
func (u *Usage) Node(ctx context.Context, name string) (Report, bool) {
	node, known := u.cfg.Node(name)
	if !known {
		return Report{}, false
	}
	return u.meter(name).report(ctx, node), true
}

// All returns the reports of all virtual nodes, sorted by name. It takes as long as the
// slowest of them.
func (u *Usage) All(ctx context.Context) []Report {
	names := u.cfg.Names()
	slices.Sort(names)
	reports := make([]*Report, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			if r, known := u.Node(ctx, name); known {
				reports[i] = &r
			}
		})
	}
	group.Wait()
	var out []Report
	for _, r := range reports {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out
}

// meter returns the meter of a node, which is made if need be. Those of nodes that are
// gone are dropped then.
func (u *Usage) meter(name string) *meter {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.nodes[name]
	if m == nil {
		for other := range u.nodes {
			if _, known := u.cfg.Node(other); !known {
				delete(u.nodes, other)
			}
		}
		m = newMeter(name, u.cfg.Now, u.cfg.Logger)
		u.nodes[name] = m
	}
	return m
}
