// Package throttle bounds how often somebody may do something, and how much of it
// at a time, for many of them, in bounded memory.
package throttle
