// Package offer finds out what this cluster can offer to its consumers, and keeps
// in mind what each of them was told. It has no I/O.
//
// [Count] adds up what the nodes can run and takes off what the pods of this
// cluster ask for: the [Pool]. A [Split] says which part of it each consumer is
// promised. A [Allocator] turns that into offers that change only when there is
// something to say: amounts have to change by more than a threshold and for some
// time before a consumer is told, what people decide is told nearly at once, and
// an offer is made anew before it ends.
//
// It must not believe what a consumer says it was offered, beyond what it would be
// offered anyway. It starts no goroutine. An Allocator may be used by several; everything
// else is a function of its arguments.
package offer
