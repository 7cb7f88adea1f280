// Package metrics says how the agent is in the form that Prometheus reads.
//
// What there is to know is a [Snapshot], which is taken anew for each scrape:
// between two of them nothing is counted, kept or looked at here. Every metric is
// declared once, in a table, from which docs/metrics.md is made. [Metrics.Handler]
// serves them, on the control socket and, if metrics.listen says so, by a
// [Listener] on a TCP port.
//
// It must not ask the network, nor change anything, and what neighbours can make
// up must not become a label: the number of series is bounded whatever they do.
//
// Goroutines: Listener.Run starts the accept loop, net/http one per connection.
// Everything else happens on the goroutine of who scrapes.
package metrics
