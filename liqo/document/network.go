package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/agent/peer/text"
)

const (
	maxNetwork = 4 << 10 // of the document, in bytes
	// maxPods is how many ranges of pods a cluster may have. Liqo has one range of external addresses.
	maxPods = 8
	// maxAddresses is how many addresses a cluster may have altogether, as many as a /11. Liqo maps a range to one of
	// the same size if it is taken here, so more would leave none for others.
	maxAddresses   = 1 << 21
	maxBits        = 30
	keyBytes       = 32 // of a key of WireGuard
	minMTU, maxMTU = 576, 9000
)

// ranges are those whose addresses are nobody's on the internet (RFC 1918, 6598 and 2544). A cluster
// that has others for its pods would have this one's packets to their owners.
var ranges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"),
}

// RangePattern matches these and what is within them, for who cannot ask ParseNetwork.
const RangePattern = `^(10[.][0-9.]+/[1-3][0-9]|172[.](1[6-9]|2[0-9]|3[01])[.][0-9.]+/(1[2-9]|[23][0-9])|192[.]168[.][0-9.]+/(1[6-9]|[23][0-9])|` +
	`100[.](6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])[.][0-9.]+/[1-3][0-9]|198[.]1[89][.][0-9.]+/(1[5-9]|[23][0-9]))$`

// Gateway is the end of the tunnel between two clusters that one of them has.
type Gateway string

// The gateways, besides "" for none.
const (
	Server Gateway = "server" // it waits for the other one at a port
	Client Gateway = "client"
)

// Network is what a cluster says about its network to one that Liqo is to connect it with: what the Configuration, the
// GatewayClient and the PublicKey over there are made of. Where its gateway is, it does not say: that is where its
// agent is; and the protocol is always UDP.
type Network struct {
	ClusterID ClusterID `json:"clusterID"`
	// Problem is why its network is not connected with others, a sentence. Nothing else is said then.
	Problem string `json:"problem,omitempty"`
	// Pods and External are the ranges of its pods, and of other addresses that it shows.
	Pods     []netip.Prefix `json:"pod,omitempty"`
	External []netip.Prefix `json:"external,omitempty"`
	// Gateway is the one that it has. Port is where a server is, 0 while that is not known, and MTU that of
	// its tunnel.
	Gateway Gateway `json:"gateway,omitempty"`
	Port    int     `json:"port,omitempty"`
	MTU     int     `json:"mtu,omitempty"`
	// Key is the public key of the gateway, nil while there is none.
	Key []byte `json:"publicKey,omitempty"`
}

// ParseNetwork reads what the cluster with that ID says about its network. Taken are the networks that the
// nodes of this cluster are in: Liqo maps a range that it knows to be taken here to another one, but of these
// it does not know.
func ParseNetwork(body []byte, from ClusterID, taken []netip.Prefix) (Network, error) {
	var n Network
	if err := decode(body, maxNetwork, &n); err != nil {
		return Network{}, fmt.Errorf("the document about its network cannot be read: %w", err)
	}
	if n.ClusterID != from {
		return Network{}, fmt.Errorf("the document is not about the network of cluster %s", from)
	}
	if n.Problem != "" {
		return Network{ClusterID: from, Problem: cmp.Or(text.Sentence(n.Problem), "It does not say why.")}, nil
	}
	if err := n.checkRanges(taken); err != nil {
		return Network{}, err
	}
	return n, n.checkGateway()
}

func (n Network) checkRanges(taken []netip.Prefix) error {
	if len(n.Pods) == 0 || len(n.Pods) > maxPods || len(n.External) != 1 {
		return fmt.Errorf("it has %d ranges for pods and %d for external addresses, not one to %d and one", len(n.Pods), len(n.External), maxPods)
	}
	all, addresses := slices.Concat(n.Pods, n.External), 0
	for i, p := range all {
		if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return p.IsValid() && p.Bits() >= r.Bits() && r.Contains(p.Addr()) }) || p != p.Masked() {
			return fmt.Errorf("%s is no range of private IPv4 addresses", p)
		}
		if addresses += 1 << (32 - p.Bits()); p.Bits() > maxBits || addresses > maxAddresses {
			return fmt.Errorf("the range %s is too large or too small: it has /%d at most, and all have %d addresses at most", p, maxBits, maxAddresses)
		}
		if slices.ContainsFunc(all[:i], p.Overlaps) {
			return fmt.Errorf("the range %s overlaps another one", p)
		}
		for _, t := range taken {
			if p.Overlaps(t) {
				return fmt.Errorf("the range %s overlaps the network %s of a node of this cluster", p, t)
			}
		}
	}
	return nil
}

func (n Network) checkGateway() error {
	switch {
	case n.Gateway != "" && n.Gateway != Server && n.Gateway != Client:
		return errors.New("its gateway is of a kind that is not known")
	case n.Gateway != Server && (n.Port != 0 || n.MTU != 0), n.Port < 0, n.Port > 0xffff:
		return fmt.Errorf("%d is no port of a GatewayServer", n.Port)
	case n.Gateway == Server && (n.MTU < minMTU || n.MTU > maxMTU):
		return fmt.Errorf("its tunnel has an MTU of %d; %d to %d make sense", n.MTU, minMTU, maxMTU)
	case n.Key != nil && (n.Gateway == "" || len(n.Key) != keyBytes || bytes.Equal(n.Key, make([]byte, keyBytes))):
		return errors.New("its public key is none of a gateway")
	}
	return nil
}

// Reachable returns the address of a peer's gateway, whose agent is at that address. Gateways have IPv4.
func Reachable(address netip.Addr) (string, error) {
	if address = address.Unmap(); !usable(address) || !address.Is4() {
		return "", errors.New("the address of its agent is not one of IPv4, which Liqo's gateways have")
	}
	return address.String(), nil
}

// Encode returns the document.
func (n Network) Encode() (json.RawMessage, error) { return json.Marshal(n) }
