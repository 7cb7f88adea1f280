// Command packager makes the .deb and .rpm packages of liqo-agent, what a package archive or an installer needs beside
// them, and SHA256SUMS over all of it. `make package` runs it.
//
// It is a module of its own, so that none of its dependencies can reach the agent's.
//
// The same binaries, inputs, version and time give the same bytes: nothing that it writes depends on the clock, the
// machine, its user or the order in which its goroutines end. It builds no binary, signs nothing and needs no network.
//
// Goroutines: one per package while it is made.
package main
