package peer

import (
	"fmt"
	"slices"

	"liqo.io/agent/peer/text"
)

// The keys of the TXT record that announces a cluster, on the LAN and in DNS
// (RFC 6763 section 6), in lower case.
const (
	TXTVersionKey     = "txtvers" // layout of the record, TXTVersion
	TXTClusterIDKey   = "id"
	TXTNameKey        = "name"
	TXTNamespaceKey   = "ns"
	TXTFingerprintKey = "fp"
	TXTProtocolKey    = "v"
)

// TXTVersion is the one version of the record's layout that there is (RFC 6763
// section 6.7).
const TXTVersion = "1"

const (
	defaultNamespace = "liqo"
	maxVersionLength = 16
)

// Announced is what a TXT record says about a cluster. It is hearsay.
type Announced struct {
	ClusterID   ClusterID
	ClusterName string
	Namespace   string
	Fingerprint Fingerprint
	Version     string // of the protocol
}

// ParseTXT reads the keys and values of a TXT record, the keys in lower case
// and the values as they came. The keys in required must be there. Without them
// cluster ID and fingerprint are unknown if they are not there, and a name, a
// namespace and a version that are not there are taken to be the ID's short form,
// "liqo" and "1". One that is there and wrong is always an error, which says which
// key it is. Keys that are not known are ignored, for those who come after us.
func ParseTXT(txt map[string]string, required ...string) (Announced, error) {
	a := Announced{Namespace: defaultNamespace, Version: firstProtocol.String()}
	if v, ok := txt[TXTVersionKey]; ok && v != TXTVersion {
		return Announced{}, fmt.Errorf("TXT key %q is %q: only version %s of the record is known", TXTVersionKey, text.Excerpt(v), TXTVersion)
	}
	given := func(key string) (string, bool) {
		value, ok := txt[key]
		return value, ok || slices.Contains(required, key)
	}
	var err error
	if id, ok := given(TXTClusterIDKey); ok {
		if a.ClusterID, err = ParseClusterID(id); err != nil {
			return Announced{}, fmt.Errorf("TXT key %q: %w", TXTClusterIDKey, err)
		}
	}
	if fp, ok := given(TXTFingerprintKey); ok {
		if a.Fingerprint, err = ParseFingerprint(fp); err != nil {
			return Announced{}, fmt.Errorf("TXT key %q: %w", TXTFingerprintKey, err)
		}
	}
	a.ClusterName = a.ClusterID.Short()
	if name, ok := given(TXTNameKey); ok {
		if a.ClusterName, err = ParseClusterName(name); err != nil {
			return Announced{}, fmt.Errorf("TXT key %q: %w", TXTNameKey, err)
		}
	}
	if ns, ok := given(TXTNamespaceKey); ok {
		if a.Namespace, err = ParseNamespace(ns); err != nil {
			return Announced{}, fmt.Errorf("TXT key %q: %w", TXTNamespaceKey, err)
		}
	}
	if v, ok := given(TXTProtocolKey); ok {
		if !validVersion(v) {
			return Announced{}, fmt.Errorf("TXT key %q: version %q is not 1 to %d letters, digits, dots and hyphens",
				TXTProtocolKey, text.Excerpt(v), maxVersionLength)
		}
		a.Version = v
	}
	return a, nil
}

func validVersion(v string) bool {
	if v == "" || len(v) > maxVersionLength {
		return false
	}
	for i := range len(v) {
		c := v[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '.' && c != '-' {
			return false
		}
	}
	return true
}
