// Package decisions is the one place where it is decided which keys are trusted,
// who may come in and whom to connect to: by people, by the configuration, by
// what peers prove. Everybody else asks it, and is told when an answer changes.
//
// What is decided is kept in memory and, before a decision takes effect, in the
// database, together with a line of history that says who decided what and why.
// What strangers can cause is kept in memory only and is bounded: a queue of
// asks that wait for a person, a few events, a limited number of keys that an
// open configuration lets in.
//
// The rules for a peer, the first that applies:
//
//   - blocked by a person: nothing, in either direction;
//   - [[peer]] connect or accept = "never": nobody can override the
//     configuration's no;
//   - a person's no: disconnected, rejected, distrusted;
//   - a person's yes;
//   - [[peer]] connect or accept = "auto";
//   - the general policy: discovery.autojoin and trust.accept.
//
// The package must not open connections, read configuration or talk to an API
// server. It verifies no certificate itself: package trust does.
//
// Goroutines: it starts none. All methods may be called from any goroutine.
// Decisions happen one after the other; asking for a Policy never waits for
// the disk.
package decisions
