// Package clock knows whether the time of this machine can be believed where a
// decision depends on a date: edge boxes boot in 1970, with a drifted clock, or on a
// network that never offers them the time.
//
// A clock is believed that does not stand before this program was built and that is
// either kept by a time server, as the kernel knows, or agrees with the clocks of
// most joined peers. Those are read off their answers to checks, which the holder of
// a trusted key gave; how they go on from there, the monotonic clock tells, so that
// a jump of our own clock shows at once.
//
// A peer has no say against a decision about itself: it could keep its trust by a
// false clock.
//
// The package must not decide what follows from the time, and asks nobody for it.
//
// Goroutines: it starts none. All methods may be called from any goroutine.
package clock
