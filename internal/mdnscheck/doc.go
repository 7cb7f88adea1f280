// Package mdnscheck checks from outside whether an mDNS responder does what
// RFC 6762 and RFC 6763 ask of one. It knows the responder only by its packets
// on the wire, so the same checks run against this project's agent and against
// any other implementation.
//
// A [Lab] is one host on the bed's LAN that can send whatever it likes, and a
// capture of everything that crosses the LAN. Each [Check] names the section it
// tests and whether that section says MUST or SHOULD.
//
// Goroutines: none of its own. A Lab belongs to one goroutine.
package mdnscheck
