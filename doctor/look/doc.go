// Package look reads what a machine says about itself for the doctor: links, sockets
// and who holds them, firewall rules, the clock, disks, limits, the service manager.
//
// It returns plain values and judges nothing: what they mean is said in package
// doctor. It changes nothing either, but for one file that Disk writes, syncs and
// removes to see how long that takes, and one question to the mDNS group that
// Multicast asks. What may not be read by this user is left out, and the value says
// so where that matters.
//
// Goroutines: Multicast runs those of an mdnssvc.Service and returns after the last of
// them has ended. Commands are run with a deadline and end with their context.
package look
