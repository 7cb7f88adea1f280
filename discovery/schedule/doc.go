// Package schedule says which of many jobs is probed next, when each keeps a probe busy
// for as long as whoever is asked wants.
//
// Jobs wait in lanes. What a lane may have under way is a budget, which others may
// share, and which may be part of a larger one; so those who can make any number of
// jobs never hold what others need. Lanes have ranks, and lanes of one rank take turns.
//
// A work queue has none of this: there whoever comes first is served first, and one who
// makes many jobs is most of the queue.
//
// The package must not know what is probed, perform a probe, or look at a clock.
//
// Goroutines: none.
package schedule
