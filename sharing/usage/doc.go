// Package usage measures what the pods at providers use, for the kubelet API of the
// virtual nodes.
//
// A provider's metrics API (metrics.k8s.io) has a rate of CPU and an amount of memory
// for each container. Who scrapes a kubelet wants counters of CPU time, and divides the
// difference of two by the time between. So rates are added up to counters here, by
// this cluster's clock. A counter goes on as long as its container runs, also while the
// provider leaves it out, and begins anew with the agent, as with a kubelet: with the
// time since when it counts, by which scrapers see that.
//
// A provider is asked when somebody asks about its node, at most every few seconds
// however many do. What it says is not trusted: only known containers and sensible
// amounts count, its clock plays no part, and there is a bound to how much is read.
//
// # What it must not do
//
// It invents nothing. Of a container of which the provider says nothing there is
// nothing, and no zero: an autoscaler would take that for an idle one.
//
// # Goroutines
//
// A measurement runs on the caller's goroutine, with a few below it that end before.
package usage
