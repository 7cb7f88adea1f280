// Command demo shows liqo-agent at work: two boxes, each with a Kubernetes API server of its own, find
// each other on a LAN, follow a change of address, notice when one is gone, and share capacity. Root on the machine also sees
// an application whose parts run in containers on both.
//
// It exits with code 1 when a step does not happen in time, so it is a test as well. With DEMO_KEEP=1
// in the environment it leaves the boxes running until it is interrupted, and prints how to get into
// them.
//
// It needs what `make demo` builds, and must not touch anything outside of its bed. Everything happens
// on the one goroutine that bed.Script calls it on.
package main
