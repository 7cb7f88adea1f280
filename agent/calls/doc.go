// Package calls handles the calls between this agent and its peers: [Incoming] answers
// theirs and counts them as sightings, [Outgoing] sends ours, and [Notifier] tells
// clusters that they were accepted. It decides nothing: the decision store and the
// peering controller do.
//
// Goroutines: Incoming.Run and Notifier.Run are one each, for as long as their session.
package calls
