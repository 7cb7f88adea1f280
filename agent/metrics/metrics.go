package metrics

import (
	"cmp"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// MaxPeers bounds the peers that have series of their own.
	MaxPeers = 256
	// maxScrapes bounds the scrapes at a time; there is one Prometheus, or two.
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// Metrics are the agent's metrics. Its methods may be called from any goroutine.
type Metrics struct {
	registry *prometheus.Registry
	logger   *slog.Logger
}

// New returns the metrics of which source tells the values. It is called for each
// scrape, on any goroutine, and must not take longer than what looks at memory
// takes.
func New(source func() Snapshot, logger *slog.Logger) *Metrics {
	m := &Metrics{registry: prometheus.NewPedanticRegistry(), logger: logger}
	m.registry.MustRegister(
		newCollector(source),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(
			collectors.WithGoCollectorMemStatsMetricsDisabled(),
			collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{
				Matcher: regexp.MustCompile(`^/(memory/classes/heap/objects:bytes|memory/classes/total:bytes)$`),
			}),
		),
	)
	return m
}

// Handler serves the metrics to whoever asks with GET, in the form that the
// request prefers (text, OpenMetrics), compressed if it likes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            complaints{m.logger},
		ErrorHandling:       promhttp.ContinueOnError, // one metric that is wrong must not cost all others
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
		OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip},
	})
}

// complaints logs what promhttp has to say.
type complaints struct{ logger *slog.Logger }

// Println implements promhttp.Logger.
func (c complaints) Println(v ...any) { c.logger.Warn("the metrics are not complete", "error", v) }

// collector turns snapshots into metrics.
type collector struct {
	source   func() Snapshot
	families []described
}

func newCollector(source func() Snapshot) *collector {
	c := &collector{source: source}
	for _, s := range sections() {
		for _, f := range s.families {
			c.families = append(c.families, describe(f))
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.source()
	s.omitted = max(0, len(s.Peers)-MaxPeers)
	if s.omitted > 0 {
		s.Peers = mostImportant(s.Peers)
	}
	for _, f := range c.families {
		f.emit(&s, ch)
	}
}

// mostImportant returns MaxPeers peers: those whose series somebody would miss
// most, and always the same ones.
func mostImportant(all []Peer) []Peer {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(b.weight(), a.weight()), cmp.Compare(a.ID, b.ID))
	})
	return all[:MaxPeers]
}

func (p *Peer) weight() int {
	switch {
	case p.OutgoingJoined || p.IncomingJoined:
		return 2
	case p.Provider != nil || p.Consumer != nil:
		return 1
	}
	return 0
}
