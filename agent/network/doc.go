// Package network decides what the agent does on each link, by where the box
// is: the [[network]] rules of the configuration, as with Wi-Fi ("at home:
// everything; elsewhere: silent").
//
// For each link the first rule whose conditions all hold decides; where none
// holds nothing is restricted. The result can only take away from what the
// rest of the configuration allows; that is up to the caller, and so is acting
// on it.
//
// The package does no I/O, reads no clock and starts no goroutine. Rules are
// immutable and may be shared; a Chooser, which remembers how long a link has
// been waiting for the hardware address of its gateway, belongs to one
// goroutine. It must not know how links are read or what discovery is.
package network
