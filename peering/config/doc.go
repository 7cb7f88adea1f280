// Package config follows the objects of the local API server by which people configure the
// agent: SearchDomains and the ClusterConfig. What they say is told to those who look at
// domains and who follow the settings, in whole and again with each connection, and their
// status shows what became of it.
//
// [ManagerSearchDomain] owns the status of SearchDomains, and nothing else of them.
// [ManagerHealth] owns the status of the ClusterConfig: the condition Healthy, which says
// what Config.Health does, and the settings that hold, as Config.Effective has them.
// [ManagerConfig] creates the ClusterConfig when there is none, and never writes to one
// that is there: it sets no value. It is the one thing that is created instead of applied,
// because an apply would write into the object of somebody who was quicker.
//
// # What it must not do
//
// An API server that does not serve these two kinds, or does not let us read them, is no
// reason not to peer: it only waits. It does not judge what people say: those who are told
// do. It never writes what is there already.
//
// # Goroutines
//
// The constructors start none. [Domains.Run] and [Settings.Run] work until their context
// ends, each with one goroutine that follows the objects and one that does all the rest.
package config
