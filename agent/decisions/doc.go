// Package decisions decides which keys are trusted, which clusters may use this one, and
// which to connect to: by the decisions of people, by the configuration, and by what
// peers prove. All other packages ask it, and it notifies them of changes.
//
// A decision is stored in the database before it takes effect, with an entry of the
// history that says who decided what and why, and is kept in memory. State that
// strangers can cause is bounded, and kept in memory only: a queue of requests that wait
// for a person, a few events, and a limited number of keys that an open configuration
// accepts.
//
// The rules for a peer, the first that applies:
//
//   - blocked by a person: nothing, in either direction;
//   - [[peer]] connect or accept = "never", which no person can override;
//   - a person's no: disconnected, rejected, distrusted;
//   - a person's yes;
//   - [[peer]] connect or accept = "auto";
//   - the general policy: discovery.autojoin and trust.accept.
//
// The package must not open connections, read configuration or talk to an API
// server. It verifies no certificate itself: package trust does.
//
// Goroutines: it starts none. All methods may be called from any goroutine.
// Decisions are serialized; Policy never waits for the disk.
package decisions
