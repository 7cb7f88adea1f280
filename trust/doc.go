// Package trust holds the cluster key and everything that follows from it: the
// key's file, the certificates it issues, and the check of the certificates
// that others issue with theirs.
//
// A cluster has one long-lived ECDSA P-256 key. Its fingerprint (SHA-256 of the
// SubjectPublicKeyInfo) is what a peer remembers about the cluster. TLS
// connections do not use the key itself: it acts as the cluster's own CA and
// signs leaf certificates that live for a day and are replaced in memory.
//
// # Clocks
//
// Edge boxes boot in 1970, with a drifted RTC, or on a network that never
// offers them the time. Two such boxes must still recognise each other, so for
// a peer known by its fingerprint the validity period of a certificate is not
// looked at: VerifyChain with the zero time. Little is lost. A leaf's private
// key lives in the same process memory as the cluster key, so whoever steals
// the first can take the second, which does not expire; and a handshake always
// proves that the leaf's key is at hand now. Trust in a peer ends by dropping
// its fingerprint, never by a date. Callers whose trust does rest on dates, such
// as a fleet CA, pass the current time and get the dates checked.
//
// # What this package must not do
//
// It opens no connection, keeps no list of trusted peers and decides about
// nobody. It never replaces a key file it cannot use: the file is the cluster's
// identity, and only a person can decide to give that up.
//
// It starts no goroutine. Key is immutable; Issuer may be used by any number of
// goroutines at once.
package trust
