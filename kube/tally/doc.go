// Package tally counts requests to an API server: how many there were of each
// kind, what came of them and how long they took.
//
// Its values are of a fixed size whatever is counted, and their zero values are
// ready for use. It must not do anything about what it counts. It starts no
// goroutines.
package tally
