// Package engine chooses what peers two clusters: the agent's own sharing, or Liqo 1.x where
// both clusters run it. [Choose] is pure: both sides know the same, and choose the same.
//
// # Goroutines
//
// None.
package engine
