// Package scan is the command that looks at the network without the agent.
//
// Goroutines: discovery, its events and up to 16 verifications have their own. They
// end before the command returns.
package scan
