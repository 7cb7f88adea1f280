package control

import "time"

// NetworkOff is the state of the network to a peer that is not to be connected. The others
// are Connected, Connecting and Silent.
const NetworkOff = "Off"

// NetworkConnected is the state of the network to a peer that answers.
const NetworkConnected = "Connected"

// Network is the network between the pods of this cluster and those of its peers, as shown
// to people and scripts.
type Network struct {
	Reason  string        `json:"reason"`  // why this cluster cannot be connected, in one word; "" if it can
	Message string        `json:"message"` // why, in a sentence
	Peers   []NetworkPeer `json:"peers"`   // with which resources are shared, by name
	Names   Names         `json:"names"`
}

// Names is how pods of peers find names of their own clusters here.
type Names struct {
	Addresses []string `json:"addresses"` // where their queries are answered; none: nowhere
	Message   string   `json:"message"`   // why not; "" while nothing is known to be wrong
}

// NetworkPeer is the network to one peer. It counts since the start of the agent.
type NetworkPeer struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`           // as in Advert
	State   string    `json:"state"`          // Connected, Connecting, Silent, Off
	Reason  string    `json:"reason"`         // why it is Off, in one word
	Message string    `json:"message"`        // why it is not Connected; "" while nothing is known to be wrong
	Since   time.Time `json:"since,omitzero"` // of State
	Engine  string    `json:"engine"`         // what carries the packets: tls or wireguard; "" while there is no connection
	// NoWireGuard is why packets do not go by WireGuard; "" if they do.
	NoWireGuard string `json:"noWireGuard"`
	MTU         int    `json:"mtu"` // the largest packet in bytes; 0 if it is Off
	// RTTMicroseconds is how long the last probe took, there and back; 0 while none was answered.
	RTTMicroseconds int64             `json:"rttMicroseconds"`
	Theirs          []string          `json:"theirs"` // prefixes by which pods of the peer are known here
	Ours            []string          `json:"ours"`   // prefixes by which pods of this cluster are known there
	SentBytes       uint64            `json:"sentBytes"`
	ReceivedBytes   uint64            `json:"receivedBytes"`
	Dropped         map[string]uint64 `json:"dropped"` // packets that were not passed on, by reason
	// Services is how many Services of this cluster pods at the peer have, and RefusedServices
	// which they do without, and why.
	Services        int              `json:"services"`
	RefusedServices []RefusedService `json:"refusedServices"`
}

// RefusedService is a Service that pods at a provider do without.
type RefusedService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`  // NotReflected, RefusedByProvider
	Message   string `json:"message"` // a sentence
}

// NetworkProbe is one measurement of the way to a peer's network and back.
type NetworkProbe struct {
	// RTTMicroseconds is how long it took; 0 if there was no answer, for the reason in Message.
	RTTMicroseconds int64  `json:"rttMicroseconds"`
	Message         string `json:"message"`
}

// NetworkSummary is the Network in short, as shown by status.
type NetworkSummary struct {
	Reason    string `json:"reason"` // as in Network
	Message   string `json:"message"`
	Peers     int    `json:"peers"`     // with which resources are shared
	Connected int    `json:"connected"` // of them
	WireGuard int    `json:"wireGuard"` // of these, by WireGuard
	Names     Names  `json:"names"`
}

// engineWireGuard is an Engine.
const engineWireGuard = "wireguard"

// Summary returns the network in short.
func (n Network) Summary() NetworkSummary {
	out := NetworkSummary{Reason: n.Reason, Message: n.Message, Peers: len(n.Peers), Names: n.Names}
	for _, p := range n.Peers {
		if p.State == NetworkConnected {
			out.Connected++
			if p.Engine == engineWireGuard {
				out.WireGuard++
			}
		}
	}
	return out
}
