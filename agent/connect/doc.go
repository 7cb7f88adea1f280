// Package connect connects the network of this cluster with those of joined peers: it tells
// package network where peers are and keeps their addresses in the database, has
// sharing/connectivity decide who reaches whom, and tells what pods and tenants show of it.
//
// # What this package must not do
//
// It decides nothing about peers: [Connect.Use] and [Connect.Serve] say who is joined.
//
// # Goroutines
//
// None of its own, but for timers of peers whose state is about to be another.
package connect
