// Package e2e tests the built binary as its users meet it: boxes on a LAN of
// the test bed, each with a real Kubernetes API server where the test needs
// one, driven through the configuration file, signals, the command line and
// kubectl, and watched through the API server, the control socket, the database
// and the packets on the wire.
//
// It holds tests only.
package e2e
