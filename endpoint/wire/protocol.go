package wire

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// PathIDs is where a cluster says who it is.
const PathIDs = "/ids"

// The paths of the endpoint. PathIDs is for anyone and PathAsk for anyone with a
// cluster key; the others are for callers whose key is trusted to be that of
// the cluster ID in their certificate.
const (
	// PathAsk asks to be trusted and let in (POST, Ask -> Answer).
	PathAsk = "/peering/ask"
	// PathState asks what there is between the two clusters (POST, Greeting ->
	// State).
	PathState = "/peering/state"
	// PathWithdraw says that the caller gives up its part of a peering (POST,
	// Withdrawal).
	PathWithdraw = "/peering/withdraw"
	// PathNotice says that something changed at the caller's: "ask me for my
	// state" (POST, no body).
	PathNotice = "/peering/notice"
	// PathReach asks to be called back: can the caller's endpoint be reached from
	// here (POST, Greeting -> Reached)? Only the port that it greets with is tried,
	// at the address that the call comes from, and nothing is sent there.
	PathReach = "/peering/reach"
	// PathNamespaces asks for the namespace that stands for one of the caller's
	// (POST, NamespaceCall -> NamespaceAnswer).
	PathNamespaces = "/peering/namespaces"
	// PathRelease gives such a namespace back (POST, NamespaceCall).
	PathRelease = "/peering/namespaces/release"
	// PathTunnel makes the connection one of HTTP/2 with prior knowledge (GET, with
	// "Upgrade: liqo-tunnel"), on which the caller sends its other requests.
	PathTunnel = "/peering/tunnel"
	// PathNetwork makes the connection one of packets between the pods of both clusters
	// (GET, with "Upgrade: liqo-network"); see package network.
	PathNetwork = "/peering/network"
	// PathLiqo is one step of the exchange by which Liqo peers the two clusters (POST, a Call
	// of package liqo/exchange -> its Answer). The caller repeats it until it has all.
	PathLiqo = "/peering/liqo"
	// PathGateway is the beginning of the paths that lead to the API server.
	PathGateway = "/kube/"
)

// What both ends of upgraded connections go by.
const (
	// TunnelProtocol is what a connection is upgraded to at PathTunnel.
	TunnelProtocol = "liqo-tunnel"
	// NetworkProtocol is what a connection is upgraded to at PathNetwork.
	NetworkProtocol = "liqo-network"
	// NetworkUnsent is how many bytes wait in the kernel for a connection for packets, beyond what is on its way. With
	// less, a fast link waits for this process; with more, a question waits behind what is sent on a slow one.
	NetworkUnsent = 256 << 10
	// TunnelIdle is how long the server keeps a tunnel without any request.
	TunnelIdle = 5 * time.Minute
	// RequestsPerPeer is how many requests about its namespaces a peer may have under
	// way that end by themselves, and StreamsPerPeer how many watches and followed logs.
	RequestsPerPeer = 32
	StreamsPerPeer  = 64
)

// ProtocolHeader tells in each request and answer which versions of the protocol
// are spoken, as peer.Protocol writes them. Who does not send it speaks the first
// one. What is at PathIDs is the same in every version.
const ProtocolHeader = "Liqo-Protocol"

// ProtocolLine is the line of a header that tells what we speak.
func ProtocolLine() string { return ProtocolHeader + ": " + peer.Spoken().String() + "\r\n" }

// ProtocolOf returns what the sender of a ProtocolHeader with that value speaks. One
// that says nonsense about it is taken to speak the first version.
func ProtocolOf(header string) peer.Protocol {
	p, err := peer.ParseProtocol(header)
	if err != nil {
		p, _ = peer.ParseProtocol("") // that is always one
	}
	return p
}

// Speaks reports whether there is a version that we speak with who speaks theirs.
func Speaks(theirs peer.Protocol) bool {
	_, ok := peer.Spoken().Common(theirs)
	return ok
}

// Greeting is what a cluster says about itself in its calls.
type Greeting struct {
	Identity peer.Identity `json:"identity"`
	// Port is where the caller's own endpoint listens, at the address the call
	// comes from.
	Port uint16 `json:"port,omitempty"`
	// URL is where the caller wants to be called instead, https://host:port.
	URL string `json:"url,omitempty"`
}

// Ask asks for being trusted, and is the first step of a peering.
type Ask struct {
	Greeting
	// Token is the secret part of an invite, "" when there is none. It is only
	// ever sent to the key that the invite names.
	Token string `json:"token,omitempty"`
	// Fresh: the caller begins a new peering, and does not merely look after one
	// that it has. A peering that the provider ended earlier may then be asked
	// for again.
	Fresh bool `json:"fresh,omitempty"`
}

// Answer is the answer to an Ask.
type Answer struct {
	Auth    api.AuthStatus `json:"auth"`
	Reason  string         `json:"reason"`  // one word for programs
	Message string         `json:"message"` // a sentence for people
}

// State is what the answering cluster knows about the peerings between it and
// the caller. "You" is the caller, "I" is the one who answers.
type State struct {
	Identity peer.Identity `json:"identity"`
	// Kubernetes: my API server answers. While it does not, everything below is
	// unknown and left out.
	Kubernetes bool `json:"kubernetes"`
	// Request is your PeeringRequest at mine, nil when there is none.
	Request *RequestState `json:"request,omitempty"`
	// Ended is why a request of yours, which there was, is gone by my side's
	// doing: a sentence for people. "" when there was none, or you deleted it, or
	// I lost it. Do not ask again unless a person wants to.
	Ended string `json:"ended,omitempty"`
	// Consumes: I want to consume your resources; a PeeringRequest of mine at
	// yours is meant to be there.
	Consumes bool `json:"consumes"`
	// Advertisement is your offer at mine, nil when there is none.
	Advertisement *OfferState `json:"advertisement,omitempty"`
	// AdvertisementWelcome: I consume your resources, and would take an offer.
	AdvertisementWelcome bool `json:"advertisementWelcome"`
	// TakesResources: your PeeringRequest may have spec.resources. The API servers of
	// older agents refuse one that has.
	TakesResources bool `json:"takesResources,omitempty"`
	// Engine says how I can be peered; nil if that is only by the agent itself.
	Engine *Engine `json:"engine,omitempty"`
}

// Engine is what a cluster says about how it can be peered.
type Engine struct {
	// Setting is its peering.engine.
	Setting string `json:"setting,omitempty"`
	// Liqo is the Liqo 1.x that runs there, nil for none.
	Liqo *Liqo `json:"liqo,omitempty"`
	// Unknown: it was not looked for yet. Ask again in a moment.
	Unknown bool `json:"unknown,omitempty"`
}

// Liqo is the Liqo 1.x of a cluster.
type Liqo struct {
	ID      string `json:"id"` // by which Liqo knows the cluster
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"` // why it cannot be used, a clause for people; "" if it can
}

// RequestState is a PeeringRequest as its provider sees it.
type RequestState struct {
	UID string `json:"uid"`
	// Generation is the object's metadata.generation: whoever wrote a later one
	// knows that this is what was there before.
	Generation int64 `json:"generation,omitempty"`

	Phase   api.RequestPhase       `json:"phase"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	Spec    api.PeeringRequestSpec `json:"spec"`
}

// OfferState is an Advertisement as its consumer sees it.
type OfferState struct {
	UID string `json:"uid"`
	// Generation is as in RequestState.
	Generation int64 `json:"generation,omitempty"`

	Status  api.AdvertisementStatus `json:"status"`
	Message string                  `json:"message,omitempty"`
	Spec    api.AdvertisementSpec   `json:"spec"`
}

// Withdrawal says what a cluster gives up. It is for when the gateway cannot be
// used, because the API server behind it is down.
type Withdrawal struct {
	// Request: my PeeringRequest at yours is void.
	Request bool `json:"request"`
	// Advertisement: my offer at yours is void.
	Advertisement bool   `json:"advertisement"`
	Reason        string `json:"reason"` // a sentence for people
}

// NamespaceCall names a namespace of the caller.
type NamespaceCall struct {
	Name string `json:"name"`
}

// NamespaceAnswer names the namespace here that stands for it.
type NamespaceAnswer struct {
	Namespace string `json:"namespace"`
}
