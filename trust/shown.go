package trust

import (
	"crypto/x509"
	"net/url"
	"strings"

	"liqo.io/agent/peer"
)

// Shown is what the certificates of one TLS handshake prove about whoever holds
// the key of the first of them. It is a value: copies share the certificates,
// which nobody changes.
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

// The URIs by which a certificate says what it is for. They are subject
// alternative names (RFC 5280 section 4.2.1.6), under the signature.
const (
	// clusterURI is followed by a cluster ID, in leaves and fleet certificates.
	clusterURI = "liqo:cluster:"
	// succeedsURI is followed by the signer's public key, in succession
	// certificates.
	succeedsURI = "liqo:succeeds:"
)

// clusterURL is the URI that names cluster id.
func clusterURL(id peer.ClusterID) *url.URL {
	return &url.URL{Scheme: "liqo", Opaque: "cluster:" + string(id)}
}

// clusterIDOf returns the cluster ID that a certificate names, "" when it names
// none, several, or what is no cluster ID.
func clusterIDOf(cert *x509.Certificate) peer.ClusterID {
	id, err := peer.ParseClusterID(onlyURI(cert, clusterURI))
	if err != nil {
		return ""
	}
	return id
}

// onlyURI returns what follows prefix in the one URI of cert that begins with
// it, "" when none or several do.
func onlyURI(cert *x509.Certificate, prefix string) string {
	found := ""
	for _, uri := range cert.URIs {
		rest, ok := strings.CutPrefix(uri.String(), prefix)
		if !ok {
			continue
		}
		if found != "" {
			return ""
		}
		found = rest
	}
	return found
}
