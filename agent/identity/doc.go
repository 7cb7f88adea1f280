// Package identity finds the ID of this cluster when the agent starts. It does not watch
// the ID: the peering controller reports when the API server has another one.
//
// Goroutines: it starts none.
package identity
