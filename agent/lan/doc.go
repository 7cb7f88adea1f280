// Package lan connects discovery on the local network with the rest of the agent: [Links]
// passes the links, with what the [[network]] rules use them for, to the mDNS service,
// and [Sightings] passes what that discovers to the registry.
//
// Goroutines: Links.Run and Sightings.Run are one each, for as long as their session.
package lan
