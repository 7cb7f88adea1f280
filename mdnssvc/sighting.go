package mdnssvc

import (
	"errors"
	"net/netip"
	"strconv"

	"liqo.io/agent/mdnssvc/wire"
	"liqo.io/agent/peer"
)

// TXT returns the TXT record that announces a cluster, for
// responder.Announcement.
func TXT(id peer.Identity, fp peer.Fingerprint) [][2]string {
	return [][2]string{
		{peer.TXTVersionKey, peer.TXTVersion},
		{peer.TXTClusterIDKey, string(id.ClusterID)},
		{peer.TXTNameKey, id.ClusterName},
		{peer.TXTNamespaceKey, id.GuestNamespace},
		{peer.TXTFingerprintKey, fp.String()},
		{peer.TXTProtocolKey, strconv.Itoa(peer.Spoken().Newest)},
	}
}

// Sighting reads an instance as a cluster. The error says which key of its TXT
// record is wrong, or what else is missing. The cluster ID and fingerprint must
// be there; for the other keys see peer.ParseTXT.
func Sighting(e Event) (peer.Sighting, error) {
	said, err := peer.ParseTXT(wire.DecodeTXT(e.Instance.TXT), peer.TXTClusterIDKey, peer.TXTFingerprintKey)
	if err != nil {
		return peer.Sighting{}, err
	}
	s := peer.Sighting{
		Source:      peer.LAN,
		Link:        e.Link,
		Instance:    e.Instance.Name,
		ClusterID:   said.ClusterID,
		ClusterName: said.ClusterName,
		Namespace:   said.Namespace,
		Fingerprint: said.Fingerprint,
		Version:     said.Version,
		TTL:         e.Instance.TTL,
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
