// Package connectivity decides which pods of this cluster are connected with which of a
// peer's, and tells package network:
//
//   - a consumer, with its host, reaches its own guests here, and they reach the consumer;
//   - the guests that we have at a provider reach the pods of our namespaces that are
//     enabled for sharing, also those at other providers, by way of this cluster, and our
//     pods and host reach them;
//   - those of namespaces whose pods may have tokens with them reach the API server of this
//     cluster, at one port (apiserver.go);
//   - nobody reaches anything else: not hosts, not other pods, not guests of others.
//
// It also says which pods are guests of whom: what they open is bounded, connected or not.
//
// [Connectivity.Serve] and [Connectivity.Use] say again and again which peers are joined.
// What each may reach follows from the caches of pods, namespaces and nodes that
// [Connectivity.Run] has while there is a connection to the API server; without one, what
// was known last stays.
//
// What a decision does not grant ends, also connections of an earlier run. So the first one
// waits for the caches and for what the network has stored, and a peer is connected once both
// Serve and Use were called, or all peers were told of.
//
// Only a cluster with a single node of its own can be connected, on the machine that the
// agent runs on: pods of other nodes could not be reached from here. Of a cluster that
// cannot, [Connectivity.Problem] says why.
//
// # What this package must not do
//
// It carries no packets, and does not know where a peer is. It writes nothing to the API
// server.
//
// # Goroutines
//
// Run has one that decides, and those of three caches; all have ended when it returns.
package connectivity
