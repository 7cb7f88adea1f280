// Package mdnssvc connects multicast DNS to the network: it owns the sockets
// on port 5353 and runs the responder and the browser, which are pure state
// machines (packages responder and browser), against real time and real links.
//
// There is one socket per IP version, shared with other responders on the host
// (avahi-daemon, systemd-resolved), which is a member of the mDNS group on each
// link in use and says for each packet which link it goes out on. All checks
// that need the socket's knowledge happen here: which link a packet came in
// on, whether it came from there (RFC 6762 section 11), and whether it is one
// of our own, looped back. Everything ignored is counted under a name.
//
// Each link may be used for announcing, for browsing, for both or for neither
// (SetLinksFor); on a link used for neither no packet is sent.
//
// The package must not know what peers, trust or Kubernetes are. The only
// exception is Sighting and TXT, the meaning of Liqo's own TXT record.
//
// # Goroutines
//
// Run owns all protocol state and never waits for anybody: requests reach it
// through a mailbox that keeps the latest of each kind, events leave it through
// another that keeps the latest per instance, and sending never blocks. One
// reader per socket empties the kernel's buffer into a bounded queue and never
// waits either. Sockets are opened on the goroutine that calls Run, so they
// belong to its network namespace. All methods may be called from any
// goroutine.
package mdnssvc
