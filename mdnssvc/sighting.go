package mdnssvc

import (
	"errors"
	"fmt"
	"net/netip"

	"liqo.io/agent/mdnssvc/wire"
	"liqo.io/agent/peer"
)

// The keys of Liqo's TXT record, and the one version of its layout there is
// (RFC 6763 section 6.7).
const (
	keyTXTVersion  = "txtvers"
	keyClusterID   = "id"
	keyName        = "name"
	keyNamespace   = "ns"
	keyFingerprint = "fp"
	keyProtocol    = "v"

	txtVersion       = "1"
	defaultNamespace = "liqo"
	maxVersionLength = 16
)

// TXT returns the TXT record that announces a cluster, for
// responder.Announcement.
func TXT(id peer.Identity, fp peer.Fingerprint) [][2]string {
	return [][2]string{
		{keyTXTVersion, txtVersion},
		{keyClusterID, string(id.ClusterID)},
		{keyName, id.ClusterName},
		{keyNamespace, id.GuestNamespace},
		{keyFingerprint, fp.String()},
		{keyProtocol, peer.ProtocolVersion},
	}
}

// Sighting reads an instance as a cluster. The error says which key of its TXT
// record is wrong, or what else is missing. The cluster ID and fingerprint must
// be there; a name, a namespace or a version that is not there is taken to be
// the ID's short form, "liqo" and "1", but a wrong one is an error. Keys that
// are not known are ignored, for those who come after us.
func Sighting(e Event) (peer.Sighting, error) {
	txt := wire.DecodeTXT(e.Instance.TXT)
	s := peer.Sighting{
		Source:    peer.LAN,
		Link:      e.Link,
		Instance:  e.Instance.Name,
		Namespace: defaultNamespace,
		Version:   peer.ProtocolVersion,
		TTL:       e.Instance.TTL,
	}
	if v, ok := txt[keyTXTVersion]; ok && v != txtVersion {
		return peer.Sighting{}, fmt.Errorf("TXT key %q is %q: only version %s of the record is known", keyTXTVersion, clip(v), txtVersion)
	}
	var err error
	if s.ClusterID, err = peer.ParseClusterID(txt[keyClusterID]); err != nil {
		return peer.Sighting{}, fmt.Errorf("TXT key %q: %w", keyClusterID, err)
	}
	if s.Fingerprint, err = peer.ParseFingerprint(txt[keyFingerprint]); err != nil {
		return peer.Sighting{}, fmt.Errorf("TXT key %q: %w", keyFingerprint, err)
	}
	s.ClusterName = s.ClusterID.Short()
	if name, ok := txt[keyName]; ok {
		if s.ClusterName, err = peer.ParseClusterName(name); err != nil {
			return peer.Sighting{}, fmt.Errorf("TXT key %q: %w", keyName, err)
		}
	}
	if ns, ok := txt[keyNamespace]; ok {
		if s.Namespace, err = peer.ParseNamespace(ns); err != nil {
			return peer.Sighting{}, fmt.Errorf("TXT key %q: %w", keyNamespace, err)
		}
	}
	if v, ok := txt[keyProtocol]; ok {
		if !validVersion(v) {
			return peer.Sighting{}, fmt.Errorf("TXT key %q: version %q is not 1 to %d letters, digits, dots and hyphens", keyProtocol, clip(v), maxVersionLength)
		}
		s.Version = v
	}
	if e.Instance.Port == 0 {
		return peer.Sighting{}, errors.New("SRV record has port 0, where nothing can listen")
	}
	for _, a := range e.Instance.Addrs {
		s.Addrs = append(s.Addrs, netip.AddrPortFrom(a, e.Instance.Port))
	}
	if len(s.Addrs) == 0 {
		return peer.Sighting{}, errors.New("no address that could be reached on its link")
	}
	return s, nil
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

// clip shortens what strangers wrote before it is quoted.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
