// Package doctor looks at a box from the outside in and explains what it finds: the
// links, the mDNS port, multicast, the endpoint's port as peers see it, the clock, the
// API server and what is in it, the state directory, the agent itself, its
// configuration, its peers.
//
// A Check is a declared value. It gathers what it needs through the probes of a Box
// (package look, the agent's socket, the API server) and hands that to a function
// without I/O that says what it means. Every finding that is not fine says what is the
// matter, why it matters, and what to do. What cannot be looked at is skipped, with the
// reason: no root, no agent and no API server are no errors by themselves, unless
// they are what is wrong.
//
// It works with and without a running agent. It must not change anything, nor depend on
// the agent being of its own version, nor let one check that hangs keep the others
// waiting: each has a deadline.
//
// A support archive (Bundle) holds what the checks saw and more, and no secrets: what
// goes in is chosen, and what may hold a secret by accident is searched for it.
//
// It has more lines than other packages because there are many checks: each is some
// dozens of lines that no other uses, mostly words.
//
// Goroutines: Run starts one for each check, and returns after the last of them has
// ended or been given up at its deadline.
package doctor
