package vnode

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer"
)

// Why a node is not there, not ready, or going. Those which a node's Ready
// condition may show are part of the agent's interface.
const (
	// ReasonReady: all is well.
	ReasonReady = "ProviderReady"
	// ReasonUnreachable: the provider does not answer.
	ReasonUnreachable = "ProviderUnreachable"
	// ReasonExcess: the provider says more than is taken from it.
	ReasonExcess = "ProviderSaysTooMuch"
	// ReasonExpired: the provider does not answer, and its offer ended meanwhile.
	ReasonExpired = "OfferExpired"
	// ReasonNoOffer: the provider offers nothing at present.
	ReasonNoOffer = "NoOffer"
	// ReasonGone: the provider is given up.
	ReasonGone = "ProviderGone"

	// ReasonPending: the node is not made yet, or not known to be there.
	ReasonPending = "NodePending"
	// ReasonFailed: the API server refuses what the agent wants of it.
	ReasonFailed = "NodeFailed"
	// ReasonDraining: the node goes, and pods are left on it.
	ReasonDraining = "Draining"
	// ReasonRemoving: the node goes, and no pod is left on it.
	ReasonRemoving = "Removing"
)

// Kubelet is where the kubelet API of all virtual nodes is; zero while it is not
// known.
type Kubelet struct {
	Address netip.Addr
	Port    uint16
}

// Settings are what people may configure.
type Settings struct {
	// Heartbeat is how often the Lease of a node is renewed (sharing.heartbeat).
	Heartbeat time.Duration
	// DrainTimeout is how long PodDisruptionBudgets may keep pods on a node that is
	// to go (sharing.drain_timeout). After it they are deleted.
	DrainTimeout time.Duration
}

// Names remembers what nodes are called. Its methods are called on several
// goroutines.
type Names interface {
	// NodeName returns what the node of a provider was called last, "" if it never had
	// one. It is quick.
	NodeName(id peer.ClusterID) string
	// NameNode remembers a name, and reports false when it is that of another provider.
	NameNode(ctx context.Context, id peer.ClusterID, name string) (bool, error)
}

// Config is what Nodes needs. Its functions are called on several goroutines and
// must be quick.
type Config struct {
	// Settings returns the settings that hold now.
	Settings func() Settings
	// Kubelet returns where the kubelet API is now.
	Kubelet func() Kubelet
	// MetricsPath returns the path at which the kubelet API says what the pods of one node
	// use; nil: it does not.
	MetricsPath func(node string) string
	Names       Names
	// Host is the name of this machine, which its own node has or may come to have.
	Host string
	// Changed is called when what Set returned about a provider has changed. No lock
	// is held.
	Changed func(peer.ClusterID)
	// Webhook returns the MutatingWebhookConfiguration, as JSON decodes it, that is
	// installed where the API server has no MutatingAdmissionPolicies, or, for pods with
	// claims only, beside these; nil while there is none. It is
	// (*admission.Server).MutatingWebhook of peering/admission.
	Webhook func(claims bool) map[string]any
	// Claims reports whether pods with claims may run on the nodes, and whether that is known yet;
	// nil: they never may. Touch is to be called when that changes.
	Claims func() (may, known bool)
	Logger *slog.Logger
	// Now is the clock, time.Now if nil. Only differences count.
	Now func() time.Time
}

// Node is a virtual node that exists.
type Node struct {
	Name string
	ID   peer.ClusterID
	UID  types.UID
	// Accepting: pods that are bound to it are to run at the provider. False while it
	// is drained.
	Accepting bool
}
