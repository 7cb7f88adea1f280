// Package relay joins two connections: what comes from one is sent to the other,
// as it is. It knows nothing of what the bytes mean.
//
// # What it promises
//
// Whatever came from one end is sent to the other, whatever happens in the other
// direction meanwhile. A way that ends in good order ends in good order at the
// other end, and one that breaks off ends there as broken, behind all that came
// before: with a reset, once they have arrived.
//
// That an end does not listen any more says nothing about what it sent before:
// servers of exec close their connection with the last byte of the output, while
// their callers may still send input or a ping. So a failed write ends nothing but
// the writing. And nothing is closed while its other end may still be reading: the
// kernel throws away what is under way on a connection that was closed and to which
// something is sent, or that was closed with something unread.
//
// # Goroutines
//
// Join has one for each way, and returns when both have ended.
package relay
