package trust

import (
	"crypto/x509"

	"liqo.io/agent/peer"
)

// Shown is what the certificates of one TLS handshake prove about whoever holds
// the key of the first of them.
type Shown struct {
	// Fingerprint is that of the cluster key.
	Fingerprint peer.Fingerprint
	// ID is the cluster ID that the leaf names, "" when it names none. The holder
	// of the cluster key chose it: alone it proves nothing.
	ID peer.ClusterID
	// CA is the certificate of the cluster key.
	CA *x509.Certificate
	// Name is the host name that the system roots vouch for, "" for none.
	Name string

	// extras are the other certificates: successions and a fleet certificate,
	// not verified yet.
	extras []*x509.Certificate
}
