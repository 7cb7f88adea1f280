// Package trust holds the cluster key and everything that follows from it: the
// key's file and its rotation, the certificates it issues, the check of the
// certificates that others show, verification codes, invites, and the CA of a
// fleet.
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
// looked at: Verify with the zero time. Little is lost. A leaf's private
// key lives in the same process memory as the cluster key, so whoever steals
// the first can take the second, which does not expire; and a handshake always
// proves that the leaf's key is at hand now. Trust in a peer ends by dropping
// its fingerprint, never by a date. Callers whose trust does rest on dates, such
// as a fleet CA, pass the current time and get the dates checked.
//
// A fleet CA and the public CAs say what is so until a date, so there the dates
// count, and a clock that has not been set is an error of its own (ErrClock).
//
// # What a handshake proves
//
// Verify turns the certificates shown in a handshake into a Shown: the cluster
// key behind them, and on request whether that key succeeds another one
// (Shown.Succeeds) and whether a fleet CA certified it for a cluster ID
// (Shown.Certified). The chain is [leaf, CA, successions..., fleet certificate].
// VerifyNamed takes a public certificate over the cluster key as well, where a
// host name was called. Code is what people compare, and an Invite carries what
// they would compare, with a secret that lets its bearer in.
//
// Three kinds of certificate are over a cluster key. They are told apart by
// what is under their signature, so that none passes for another:
//
//	                  signed by      CA   URI
//	CA certificate    the key itself yes  none; its subject is made of the key
//	succession        an earlier key yes  liqo:succeeds:<the earlier public key>
//	fleet certificate a fleet CA     no   liqo:cluster:<cluster ID>
//
// # What this package must not do
//
// It opens no connection, keeps no list of trusted peers and of invites, and
// decides about nobody. It never replaces a key file it cannot use: the file is
// the cluster's identity, and only a person can decide to give that up.
//
// It starts no goroutine. Key is immutable; Issuer may be used by any number of
// goroutines at once.
package trust
