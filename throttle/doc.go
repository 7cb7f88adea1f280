// Package throttle bounds how often somebody may do something, and how much of it
// at a time, for many of them, in bounded memory. It also reads how long somebody who
// does so asks others to wait.
package throttle
