// Package health declares every problem of the agent that a person can see, and
// keeps which of them there are now.
//
// A problem is a [Kind]: a value with a code that never changes its meaning, how bad
// it is, what it says, what to do about it, and for how long it has to last until
// anybody is told. The kinds are the variables of this package, [All] lists them, and
// docs/health.md is made from them. A [Tracker] holds what is the matter: others tell
// it what they see with Set, Clear and Replace, and it tells who asks what has lasted
// long enough, the worst first.
//
// It does no I/O, knows nothing of the parts that it speaks about, and must not
// decide whether something is the matter: who sees it does.
//
// It starts no goroutines and no timers. A Tracker may be used from any goroutine.
package health
