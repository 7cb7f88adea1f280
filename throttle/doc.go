// Package throttle bounds how often somebody may do something, for many of them,
// in bounded memory.
package throttle
