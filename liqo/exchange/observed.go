package exchange

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Object is as much as is needed of an object to delete it.
type Object struct {
	Name     string
	UID      types.UID
	Deleting bool
}

// Namespace is a namespace that stands for another cluster.
type Namespace struct {
	Object
	// Peer is who uses it, "" if it is not in the agent's care.
	Peer peer.ClusterID
	// Made: the agent made it, and deletes it.
	Made bool
}

// Secret is one of the Secrets with a nonce.
type Secret struct {
	Object
	Nonce, Signature []byte // as they are stored; nil while they are not
}

// Tenant is a Tenant in this cluster.
type Tenant struct {
	Object
	document.Tenant
	// Drained: what its consumer has here is being removed.
	Drained bool
	// Addresses are those of this cluster when Liqo was last made to look for them.
	Addresses string
	// Auth are what the consumer is to know, nil while Liqo has not made them.
	Auth *document.Identity
}

// Identity is an Identity in this cluster.
type Identity struct {
	Object
	document.Identity
	// Type is IdentityControlPlane.
	Type string
	// Kubeconfig: Liqo has made the Secret with the kubeconfig.
	Kubeconfig bool
}

// Slice is a ResourceSlice of this cluster.
type Slice struct {
	Object
	document.Slice
	// Asks are the amounts that the agent asks for by it.
	Asks map[string]string
	// Server is where Liqo calls the provider for it, "" while it does not.
	Server string
}

// Node is a VirtualNode of this cluster. It is called as its ResourceSlice.
type Node struct {
	Object
	// Server is where its virtual kubelet calls the provider; "" if that was not noted yet.
	Server string
}

// Here is what there is in the API server about one other cluster, in both directions: in the namespace
// that is in care for the peer, nothing without one.
type Here struct {
	// Namespaces are those that stand for the cluster. More than one confuses Liqo.
	Namespaces []Namespace
	// Signed and Identity are those of a consumer, Nonce and Tenant those of a provider.
	Signed, Nonce *Secret
	Identity      *Identity
	Tenant        *Tenant
	// Slices are the ResourceSlices that this cluster asks with, VirtualNodes what came of them.
	Slices       []Slice
	VirtualNodes []Node
	// Kubeconfig: the Secret with the kubeconfig of the Identity is there. It outlives the
	// Identity as long as something of ours is at the provider.
	Kubeconfig bool
	// Certificate is the Secret with the certificate that Liqo gave the consumer for its Tenant.
	Certificate *Object
	// Replicated are the objects that the consumer's Liqo has put here.
	Replicated []Replica
	// Foreign is what Liqo shows about the cluster, nil if there is none. Checked is where it looks
	// for the provider's API server; "" while it does not. Abandoned: Liqo was told that the cluster is gone.
	// Shown are its conditions.
	Foreign   *Object
	Checked   string
	Abandoned bool
	Shown     []Shown
	// Connected is what connects the networks of the two clusters.
	Connected Connected
}

// Replica is an object that a consumer's Liqo has put here: a ResourceSlice or a Renew.
type Replica struct {
	Object
	Kind Kind // SliceObject or RenewObject
}

// Shown is a condition that Liqo shows about another cluster, for people.
type Shown struct {
	// Module is networking, authentication or offloading; "" for the cluster as a whole.
	Module string
	// Type and Status are Liqo's words: OffloadingNodeStatus, Ready.
	Type, Status, Message string
}

// cared returns the name of the namespace that is in the agent's care for a peer, "" for none.
func (h Here) cared(of peer.ClusterID) string {
	for _, n := range h.Namespaces {
		if n.Peer == of {
			return n.Name
		}
	}
	return ""
}

// empty reports whether nothing of a peering is there.
func (h Here) empty() bool {
	return h.Signed == nil && h.Nonce == nil && h.Identity == nil && h.Tenant == nil && len(h.Slices) == 0 && len(h.VirtualNodes) == 0 &&
		!h.Kubeconfig && len(h.Replicated) == 0
}

// Call is what a consumer says to its provider.
type Call struct {
	ClusterID document.ClusterID `json:"clusterID"`
	Tenant    json.RawMessage    `json:"tenant,omitempty"`
	// Network is that of the consumer, as soon as it has resources of the provider.
	Network json.RawMessage `json:"network,omitempty"`
}

// Equal reports whether c and o say the same.
func (c Call) Equal(o Call) bool {
	return c.ClusterID == o.ClusterID && slices.Equal(c.Tenant, o.Tenant) && slices.Equal(c.Network, o.Network)
}

// Answer is what the provider answers: all that it has by then.
type Answer struct {
	ClusterID document.ClusterID `json:"clusterID"`
	Nonce     document.Nonce     `json:"nonce,omitempty"`
	Identity  json.RawMessage    `json:"identity,omitempty"`
	// Network is that of the provider, as soon as it gives resources to the consumer.
	Network json.RawMessage `json:"network,omitempty"`
	// Waits is for what, a sentence for the people of the consumer; "" if nothing is missing.
	Waits string `json:"waits,omitempty"`
}

// Step is one step of the exchange, in the words of liqoctl.
type Step struct {
	// Name is one word for programs. It never changes.
	Name string
	Text string
	Done bool
}

// Reasons why it does not go on, for programs.
const (
	// ReasonNotOurs: the namespace that stands for the cluster is not in the agent's care.
	ReasonNotOurs = "NotInCare"
	// ReasonClaimed: another peer has that ID of Liqo.
	ReasonClaimed = "LiqoIDClaimed"
	// ReasonHostile: what the other cluster says is refused.
	ReasonHostile = "DocumentRefused"
	// ReasonWaits: it waits for Liqo here or there.
	ReasonWaits = "AwaitingLiqo"
	// ReasonDenied: the provider's Liqo denies the ResourceSlice.
	ReasonDenied = "SliceDenied"
	// ReasonFailed: the API server here refuses a step, or does not answer.
	ReasonFailed = "StepFailed"
	// ReasonReady: it is done.
	ReasonReady = "Ready"
	// ReasonRemoving: it is being undone.
	ReasonRemoving = "Removing"
)

// Decision is what is to be done now.
type Decision struct {
	// Actions are carried out in this order, up to the first that fails.
	Actions []Action
	// Call is what is to be said to the provider if that was not said before; nil for nothing.
	Call *Call
	// Answer is what is answered to the consumer.
	Answer Answer
	// Steps are those of the exchange so far.
	Steps []Step
	// Present: something of it is there.
	Present bool
	// Ready: there is nothing left to do. Busy: of a peering that is not wanted, something is
	// left that needs the other side.
	Ready, Busy bool
	// Reason and Message say what it waits for.
	Reason, Message string
	// Unconnected is why the networks of the two are not connected, a sentence, "" if they are or that is for
	// others to say. Connecting: Liqo here is at work on it.
	Unconnected string
	Connecting  bool
}

// Status is the state of one direction of a pair. The zero Status is that of one of which there
// is nothing.
type Status struct {
	// Unknown: it was not looked at on this connection, or since it is not wanted any more.
	// Something of it may be there, and the rest is what was known before.
	Unknown bool
	// Present: something of it is in this cluster.
	Present bool
	// Ready: Liqo has peered the two. Busy: it is not wanted, and something of it is left that
	// needs the other side.
	Ready, Busy bool
	// Reason and Message, a sentence, say what it waits for.
	Reason, Message string
	// Steps are those of a consumer.
	Steps []Step
	// Unconnected is why the networks of the two are not connected, a sentence, as far as that is known.
	Unconnected string
	// Shown is what Liqo shows about the other cluster.
	Shown []Shown
}

// Status returns the state that a decision is made in.
func (d Decision) Status() Status {
	return Status{Present: d.Present, Ready: d.Ready, Busy: d.Busy, Reason: d.Reason, Message: d.Message, Steps: d.Steps, Unconnected: d.Unconnected}
}

// Fail says that a step of the decision failed, which was about that kind. For what connects networks, nothing
// else waits.
func (d *Decision) Fail(of Kind, err error) {
	why := "A step here failed, and is tried again: " + text.Sentence(err.Error()) + "."
	if d.Ready && of.Connects() {
		d.Unconnected = why
		return
	}
	d.Ready = false
	d.wait(ReasonFailed, "%s", why)
}

// wait says why it does not go on.
func (d *Decision) wait(reason, format string, args ...any) {
	d.Reason, d.Message = reason, fmt.Sprintf(format, args...)
}

// do adds an action.
func (d *Decision) do(a Action) { d.Actions = append(d.Actions, a) }

// remove adds the deletion of an object, once.
func (d *Decision) remove(kind Kind, namespace string, o Object) {
	if !o.Deleting {
		d.do(Action{Verb: Delete, Kind: kind, Namespace: namespace, Name: o.Name, UID: o.UID})
	}
}

// Verb is what an Action does.
type Verb string

// The verbs. Create makes an object that must not exist, Apply makes the object of that name say what the Action does, and Delete deletes
// the one with that UID. Move sets only an Identity's API server, Drain only a Tenant's
// condition, and Note only an annotation: Liqo looks at a Tenant again then, and starts the
// virtual kubelet of a VirtualNode again if Restart says so.
const (
	Create Verb = "create"
	Apply  Verb = "apply"
	Delete Verb = "delete"
	Move   Verb = "move"
	Drain  Verb = "drain"
	Note   Verb = "note"
	// Abandon tells Liqo that a cluster is gone for ever, so that it waits for nothing there.
	Abandon Verb = "abandon"
)

// Kind is what an Action is about.
type Kind string

// The kinds. NonceSecret and SignedSecret are Secrets.
const (
	TenantNamespace Kind = "namespace"
	NonceSecret     Kind = "nonce"
	SignedSecret    Kind = "signed-nonce"
	TenantObject    Kind = "tenant"
	IdentityObject  Kind = "identity"
	SliceObject     Kind = "resourceslice"
	RenewObject     Kind = "renew"
	VirtualNode     Kind = "virtualnode"
	CertSecret      Kind = "certificate"
	ForeignCluster  Kind = "foreigncluster"

	ConfigurationObject Kind = "configuration"
	GatewayServer       Kind = "gatewayserver"
	GatewayClient       Kind = "gatewayclient"
	PublicKeyObject     Kind = "publickey"
)

// Connects reports whether objects of a kind connect networks.
func (k Kind) Connects() bool {
	return slices.Contains([]Kind{ConfigurationObject, GatewayServer, GatewayClient, PublicKeyObject}, k)
}

// Action is one request to the API server of this cluster. It is idempotent.
type Action struct {
	Verb      Verb
	Kind      Kind
	Namespace string
	Name      string
	UID       types.UID // Delete
	// Cluster is the ID of the other cluster, and Peer the one that agents know it by.
	Cluster document.ClusterID
	Peer    peer.ClusterID

	Nonce    document.Nonce     // Apply SignedSecret
	Tenant   *document.Tenant   // Apply TenantObject
	Identity *document.Identity // Apply IdentityObject
	Server   string             // Move; "" for none
	Noted    string             // Note, and Apply TenantObject
	Restart  bool               // Note VirtualNode
	Asks     map[string]string  // Apply SliceObject

	Ranges   Ranges   // Apply ConfigurationObject
	Endpoint Endpoint // Apply GatewayServer, GatewayClient
	Key      []byte   // Apply PublicKeyObject
}

// called reports whether it is clear what Liqo calls the other cluster, by what is known here, "" for nothing,
// and by what it says; else d says why not, with silent as the sentence about one that is not known.
func (d *Decision) called(self, other, said document.ClusterID, silent string) bool {
	switch {
	case self == "":
		d.wait(ReasonWaits, "Liqo here does not say how it calls this cluster.")
	case other == "":
		d.wait(ReasonWaits, "%s", silent)
	case said != other:
		d.wait(ReasonClaimed, "Liqo called the cluster %s, and calls it %s now. Disconnect it and connect it again to use the new ID.", other, said)
	case other == self:
		d.wait(ReasonClaimed, "Liqo calls both clusters %s. Two clusters cannot have one ID in Liqo: install Liqo in one of them with another.", self)
	default:
		return true
	}
	return false
}

// care finds the namespace that stands for a cluster and is in the agent's care for a peer. If
// there is none, d says why, or makes it.
func (d *Decision) care(here Here, id document.ClusterID, of peer.ClusterID) (namespace string, ok bool) {
	switch len(here.Namespaces) {
	case 0:
		d.do(Action{Verb: Create, Kind: TenantNamespace, Name: id.TenantNamespace(), Cluster: id, Peer: of})
		d.wait(ReasonWaits, "The namespace %s is being made.", id.TenantNamespace())
		return "", false
	case 1:
	default:
		d.wait(ReasonNotOurs, "%d namespaces stand for cluster %s, and Liqo works with one: delete all but one of those with label %s=%s.",
			len(here.Namespaces), id, document.LabelRemoteCluster, id)
		return "", false
	}
	n := here.Namespaces[0]
	switch {
	case n.Deleting:
		d.wait(ReasonWaits, "The namespace %s is being deleted.", n.Name)
	case n.Peer == of:
		return n.Name, true
	case n.Peer != "":
		d.wait(ReasonClaimed, "The cluster says that Liqo calls it %s, and that is cluster %s here. Two clusters cannot have one ID in Liqo: install Liqo in one of them with another.", id, n.Peer)
	default:
		d.wait(ReasonNotOurs, "The namespace %s is of a peering that the agent did not make. If cluster %s is that peer, put it into the agent's care: kubectl label namespace %s %s=%s",
			n.Name, of, n.Name, api.LabelClusterID, of)
	}
	return "", false
}

// release deletes a namespace that the agent made, when nothing of a peering is left in it, and
// what Liqo goes on to show about the cluster. Liqo may make that again while the namespace ends.
func (d *Decision) release(here Here, id document.ClusterID, of peer.ClusterID) {
	for _, n := range here.Namespaces {
		if n.Peer == of && n.Made && here.empty() {
			if here.Foreign != nil {
				d.remove(ForeignCluster, "", *here.Foreign)
			}
			d.remove(TenantNamespace, "", n.Object)
		}
	}
}

// Consumer is what the plan of a consumer is made of.
type Consumer struct {
	// Peer is the provider, as agents know it. Wanted: this cluster wants to consume it. Undecided:
	// that is not known, and what is there stays as it is.
	Peer              peer.ClusterID
	Wanted, Undecided bool
	// Gone: the provider is given up: nothing waits for it. Cut: the networks are not to be connected, and are
	// disconnected at once.
	Gone, Cut bool
	// Self is this cluster, and Provider the other one: as it said, or as the namespace in care
	// says; "" while nothing does.
	Self, Provider document.ClusterID
	// Keys are those of this cluster, nil while they are not read.
	Keys *document.Keys
	// Asks are the amounts to ask for; what is missing is left to the provider, or to a person.
	Asks map[string]string
	Here
	// Serves: it is, or is to be, a provider of the other one as well.
	Serves bool
	// Network is that of this cluster.
	Network Network
	// Said is the provider's last answer, nil before there was one, and Address where it came
	// from.
	Said    *Answer
	Address netip.Addr
	Now     time.Time
}

// Provider is what the plan of a provider is made of.
type Provider struct {
	// Peer is the consumer, as agents know it. Wanted: it may consume this cluster. Undecided: that is
	// not known, and what is there stays as it is.
	Peer              peer.ClusterID
	Wanted, Undecided bool
	// Overdue: it was not wanted for so long that nobody waits for the consumer any more. Expired: nor for
	// Liqo here. Cut: the networks are not to be connected, and are disconnected at once.
	Overdue, Expired, Cut bool
	// Self is this cluster, and Consumer the other one: as it said, or as the namespace in care
	// says; "" while nothing does.
	Self, Consumer document.ClusterID
	// Addresses are those of this cluster's API server, "" while they are not known.
	Addresses string
	Here
	// Consumes: it is, or is to be, a consumer of the other one as well.
	Consumes bool
	// Network is that of this cluster.
	Network Network
	// Said is the consumer's last call, nil before there was one, and Address where it came from.
	Said    *Call
	Address netip.Addr
}
