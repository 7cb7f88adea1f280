package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/agent/kube/tally"
	"liqo.io/agent/peer/text"
)

// prefix is what every name of the agent's own metrics begins with.
const prefix = "liqo_agent_"

// kind is the type of a metric, in Prometheus's words.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// add takes one value with those of the labels, in the order of the family.
type add func(value float64, labels ...string)

// family is everything there is to say about one metric.
type family struct {
	name   string // without prefix
	kind   kind
	labels []string
	help   string
	// collect tells the values; took, for a histogram, what it counted.
	collect func(s *Snapshot, add add)
	took    func(s *Snapshot) tally.Distribution
}

// section is a group of metrics in the documentation.
type section struct {
	title    string
	families []family
}

// sections declare every metric of the agent.
func sections() []section {
	return []section{
		{"The agent", agentFamilies}, {"Discovery", discoveryFamilies}, {"The endpoint", endpointFamilies},
		{"The API server", apiServerFamilies}, {"Peerings", peeringFamilies}, {"Sharing", sharingFamilies},
		{"Trust and state", keepingFamilies},
	}
}

// maxLabel bounds a label's value, in bytes.
const maxLabel = 128

// label makes of s one that can be a label's value, whoever it comes from.
func label(s string) string { return strings.ToValidUTF8(text.Clip(s, maxLabel), "?") }

func one(value float64, add add) { add(value) }

// number is a family's collect for a single value.
func number[N int | int64 | uint64 | float64](value func(*Snapshot) N) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { one(float64(value(s)), add) }
}

// yes is a family's collect for a single 0 or 1.
func yes(value func(*Snapshot) bool) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { add(truth(value(s))) }
}

// moment is a family's collect for a single time; nothing while it is zero.
func moment(value func(*Snapshot) time.Time) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { seconds(value(s), add) }
}

// seconds adds a time as Unix seconds, unless it is zero.
func seconds(at time.Time, add add, labels ...string) {
	if !at.IsZero() {
		add(float64(at.UnixMilli())/1000, labels...)
	}
}

// by is a family's collect for a map whose keys are the values of its label.
func by[N int | uint64](values func(*Snapshot) map[string]N) func(*Snapshot, add) {
	return func(s *Snapshot, add add) {
		for key, n := range values(s) {
			add(float64(n), key)
		}
	}
}

// peers is a family's collect for a value of each peer.
func peers(value func(p *Peer, add add)) func(*Snapshot, add) {
	return func(s *Snapshot, add add) {
		for i := range s.Peers {
			value(&s.Peers[i], add)
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func counts(all []tally.Count, add add) {
	for _, c := range all {
		add(float64(c.N), string(c.Verb), string(c.Result))
	}
}

// described is a family with its descriptor.
type described struct {
	family
	desc *prometheus.Desc
}

func describe(f family) described {
	return described{family: f, desc: prometheus.NewDesc(prefix+f.name, f.help, f.labels, nil)}
}

// emit sends the values that a snapshot has.
func (d described) emit(s *Snapshot, ch chan<- prometheus.Metric) {
	if d.kind == histogram {
		took := d.took(s)
		send(ch, d.desc)(prometheus.NewConstHistogram(d.desc, took.Count, took.Seconds, took.Buckets))
		return
	}
	kind := prometheus.GaugeValue
	if d.kind == counter {
		kind = prometheus.CounterValue
	}
	d.collect(s, func(value float64, labels ...string) {
		for i := range labels {
			labels[i] = label(labels[i])
		}
		send(ch, d.desc)(prometheus.NewConstMetric(d.desc, kind, value, labels...))
	})
}

// send sends a metric, or why there is none.
func send(ch chan<- prometheus.Metric, desc *prometheus.Desc) func(prometheus.Metric, error) {
	return func(m prometheus.Metric, err error) {
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		ch <- m
	}
}
