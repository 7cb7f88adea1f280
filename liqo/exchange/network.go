package exchange

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"

	"liqo.io/agent/liqo/document"
	"liqo.io/agent/peer"
)

// The names of the steps by which the networks of two clusters are connected.
const (
	StepNetwork       = "network-configuration"
	StepConfiguration = "configuration-applied"
	StepServer        = "gateway-server"
	StepClient        = "gateway-client"
	StepKey           = "public-key"
	StepConnection    = "connection"
)

// Network is the network of this cluster, as Liqo has it.
type Network struct {
	// Problem is why Liqo does not connect it with others, a sentence; "" if it does.
	Problem string
	Ranges
	// Taken are the networks that this cluster's nodes are in, as far as they are known.
	Taken []netip.Prefix
}

// Ranges are those of a cluster's pods, and of the other addresses that it shows.
type Ranges struct {
	Pods, External []netip.Prefix
}

func (r Ranges) equal(o Ranges) bool {
	return slices.Equal(r.Pods, o.Pods) && slices.Equal(r.External, o.External)
}

// Connected is what there is in this cluster to connect its network with the one of another. Liqo works with
// one of each kind, and with one gateway.
type Connected struct {
	Configuration  *Configuration
	Server, Client *Gateway
	Key            *PublicKey
	// Several is the kind of which there are several, "" if there is none.
	Several string
}

// Configuration are the ranges of the other cluster.
type Configuration struct {
	Object
	// Ours: the agent made it.
	Ours bool
	Ranges
	// Applied: Liqo uses them.
	Applied bool
}

// Endpoint is where a GatewayServer waits, or a GatewayClient calls.
type Endpoint struct {
	Address string // of a client
	Port    int    // 0 while that of a server is not known
	MTU     int
}

// Gateway is a GatewayServer or a GatewayClient.
type Gateway struct {
	Object
	// Ours: the agent made it.
	Ours bool
	Endpoint
	// Key is its public key, nil while Liqo has not made it.
	Key []byte
}

// made reports whether Liqo has made the gateway, which is of that kind: its key and, of a server, its port are there.
func (g *Gateway) made(what document.Gateway) bool {
	return g.Key != nil && (what != document.Server || g.Port != 0)
}

// PublicKey is that of the other cluster's gateway.
type PublicKey struct {
	Object
	// Ours: the agent made it.
	Ours bool
	Key  []byte
}

// gateway returns the gateway of this cluster and what it is; nil for none. Of several, none is used.
func (c Connected) gateway() (*Gateway, document.Gateway) {
	switch {
	case c.Server != nil && c.Client != nil, c.Several != "":
	case c.Server != nil:
		return c.Server, document.Server
	case c.Client != nil:
		return c.Client, document.Client
	}
	return nil, ""
}

// connection is what it takes to connect the networks of two clusters, whichever of them consumes the other.
type connection struct {
	self, other document.ClusterID
	peer        peer.ClusterID
	namespace   string
	network     Network
	here        Here
	// said is what the other cluster says about its network, nil for nothing. address is where it is.
	said    json.RawMessage
	address netip.Addr
	// serves: this cluster has the GatewayServer, unless there is a gateway already.
	serves bool
	// silent is why nothing was said, a sentence.
	silent string

	theirs *document.Network // that was read
}

// says returns what this cluster says about its network.
func (c *connection) says() json.RawMessage {
	n := document.Network{ClusterID: c.self, Problem: c.network.Problem}
	if n.Problem == "" {
		n.Pods, n.External = c.network.Pods, c.network.External
		if g, what := c.here.Connected.gateway(); g != nil && !g.Deleting {
			n.Gateway, n.Key = what, g.Key
			if what == document.Server {
				n.Port, n.MTU = g.Port, g.MTU
			}
		}
	}
	text, err := n.Encode()
	if err != nil {
		return nil // of ranges alone it cannot fail
	}
	return text
}

// connect has Liqo connect the networks, by the steps of `liqoctl network connect`.
func (d *Decision) connect(c *connection) {
	have := c.here.Connected
	switch {
	case c.network.Problem != "":
		d.Unconnected = c.network.Problem
		return
	case c.said == nil:
		d.Unconnected = c.silent
		return
	case have.Several != "":
		d.Unconnected = "There are several of " + have.Several + " for the cluster, and Liqo works with one: delete the others."
		return
	}
	theirs, err := document.ParseNetwork(c.said, c.other, c.network.Taken)
	switch {
	case err != nil:
		d.Unconnected = "What the cluster says about its network is refused: " + err.Error() + "."
		return
	case theirs.Problem != "":
		d.Unconnected = "The other cluster does not connect its network: " + theirs.Problem
		return
	}
	c.theirs = &theirs
	if !d.configure(c) {
		return
	}
	if d.open(c) {
		d.exchangeKeys(c)
	}
}

// configure keeps the Configuration, and reports whether Liqo uses it.
func (d *Decision) configure(c *connection) bool {
	have, want := c.here.Connected.Configuration, Ranges{c.theirs.Pods, c.theirs.External}
	if have == nil || have.Ours && !have.Deleting && !have.equal(want) {
		d.keep(ConfigurationObject, c, have == nil, Action{Ranges: want})
	} else if have.Applied && !have.Deleting {
		return true
	}
	d.Connecting, d.Unconnected = true, "Liqo here applies the Configuration of the cluster."
	return false
}

// role returns the gateway that this cluster is to have. One that is there stays; two clusters that made a
// server at the same time keep the one whose ID is less.
func (c *connection) role() document.Gateway {
	own, what := c.here.Connected.gateway()
	switch theirs := c.theirs.Gateway; {
	case own != nil && theirs == what && own.Ours && (what == document.Server) == (c.self > c.other):
		return opposite(what)
	case own != nil:
		return what
	case theirs != "":
		return opposite(theirs)
	case c.serves:
		return document.Server
	}
	return document.Client
}

func opposite(g document.Gateway) document.Gateway {
	if g == document.Server {
		return document.Client
	}
	return document.Server
}

// open keeps the gateway, and reports whether Liqo has made it and its key.
func (d *Decision) open(c *connection) bool {
	have, role := c.here.Connected, c.role()
	own, what := have.gateway()
	d.Unconnected = "Liqo here makes the gateway."
	if have.Server != nil && have.Client != nil {
		if !have.Server.Ours || !have.Client.Ours {
			d.Unconnected = "There are a GatewayServer and a GatewayClient for the cluster, and Liqo works with one gateway: delete one of them."
			return false
		}
		// Each direction of the pair made one, before it saw the other one's.
		if own, what = have.Server, document.Server; role == document.Server {
			own, what = have.Client, document.Client
		}
	}
	switch {
	case own != nil && (own.Deleting || what != role):
		d.Connecting = true
		d.remove(map[document.Gateway]Kind{document.Server: GatewayServer, document.Client: GatewayClient}[what], c.namespace, own.Object)
		return false
	case own != nil && what == c.theirs.Gateway:
		d.Unconnected = "Both clusters have a Liqo gateway that is a " + string(what) + ". One that the agent made goes; else delete one of them."
		return false
	case role == document.Server && own == nil:
		d.keep(GatewayServer, c, true, Action{Endpoint: Endpoint{Port: document.GatewayPort, MTU: document.GatewayMTU}})
		d.Connecting = true
		return false
	case role == document.Client && !d.call(c, own):
		return false
	case !own.made(role):
		d.Connecting = true
		return false
	}
	return true
}

// call keeps the GatewayClient, and reports whether it calls where the other cluster is. One that liqoctl made
// may call another address than that of the agent.
func (d *Decision) call(c *connection, own *Gateway) bool {
	if own != nil && !own.Ours {
		return true
	}
	if c.theirs.Gateway != document.Server || c.theirs.Port == 0 {
		d.Unconnected = "Liqo in the other cluster makes the gateway."
		return false
	}
	address, err := document.Reachable(c.address)
	if err != nil {
		if own != nil {
			return true // it was not called yet since the agent was started
		}
		d.Unconnected = "The gateway of the cluster cannot be called: " + err.Error() + "."
		return false
	}
	want := Endpoint{Address: address, Port: c.theirs.Port, MTU: c.theirs.MTU}
	if own == nil || own.Endpoint != want {
		d.keep(GatewayClient, c, own == nil, Action{Endpoint: want})
		d.Connecting = true
		return false
	}
	return true
}

// exchangeKeys keeps the PublicKey of the other gateway. The rest is up to the gateways.
func (d *Decision) exchangeKeys(c *connection) {
	have := c.here.Connected.Key
	switch {
	case c.theirs.Key == nil:
		d.Unconnected = "Liqo in the other cluster makes the key of its gateway."
		return
	case have == nil || have.Ours && !have.Deleting && !bytes.Equal(have.Key, c.theirs.Key):
		d.keep(PublicKeyObject, c, have == nil, Action{Key: c.theirs.Key})
	case !have.Ours && !bytes.Equal(have.Key, c.theirs.Key):
		d.Unconnected = "The PublicKey " + have.Name + " was not made by the agent, and has another key than the gateway of the other cluster: delete it to have it made again."
		return
	}
	d.Unconnected = ""
}

// keep adds the action that makes an object of the other cluster say what is wanted. One that is missing is made,
// and not applied: if liqoctl makes it at the same moment, it stays liqoctl's.
func (d *Decision) keep(kind Kind, c *connection, missing bool, want Action) {
	want.Verb, want.Kind, want.Namespace, want.Name, want.Cluster, want.Peer = Apply, kind, c.namespace, string(c.other), c.other, c.peer
	if missing {
		want.Verb = Create
	}
	d.do(want)
}

// steps returns how far it is, in the words of liqoctl; none if the networks are not to be connected.
func (c *connection) steps() []Step {
	if c.network.Problem != "" || c.said == nil || c.theirs == nil {
		return nil
	}
	have := c.here.Connected
	own, what := have.gateway()
	ready := own != nil && own.Key != nil
	step := func(role document.Gateway) (where string, done bool) {
		if c.role() == role {
			return "(local)", ready && what == role
		}
		return "(remote)", c.theirs.Gateway == role && c.theirs.Key != nil
	}
	atServer, served := step(document.Server)
	atClient, called := step(document.Client)
	return []Step{
		{StepNetwork, "(remote) Network configuration correctly retrieved", true},
		{StepConfiguration, "(local) Configuration applied successfully", have.Configuration != nil && have.Configuration.Applied},
		{StepServer, atServer + " Gateway server correctly set up", served},
		{StepClient, atClient + " Gateway client correctly set up", called},
		{StepKey, "(local) Public key correctly created", have.Key != nil},
		{StepConnection, "(local) Connection is established", c.here.established()},
	}
}

// Of Liqo's ForeignCluster (apis/core/v1beta1).
const (
	// ShownConnection is the type of the condition about the connection of the networks, and Established its
	// status if they are connected.
	ShownConnection = "NetworkConnectionStatus"
	Established     = "Established"
)

// established reports whether Liqo says that the networks are connected.
func (h Here) established() bool {
	return slices.ContainsFunc(h.Shown, func(s Shown) bool { return s.Type == ShownConnection && s.Status == Established })
}

// disconnect removes what the agent made to connect the networks, as `liqoctl network reset` does, and reports
// whether it is gone.
func (d *Decision) disconnect(namespace string, have Connected) bool {
	gone := true
	remove := func(kind Kind, ours bool, o Object) {
		if ours {
			gone = false
			d.remove(kind, namespace, o)
		}
	}
	if g := have.Client; g != nil {
		remove(GatewayClient, g.Ours, g.Object)
	}
	if g := have.Server; g != nil {
		remove(GatewayServer, g.Ours, g.Object)
	}
	if k := have.Key; k != nil {
		remove(PublicKeyObject, k.Ours, k.Object)
	}
	if c := have.Configuration; c != nil {
		remove(ConfigurationObject, c.Ours, c.Object)
	}
	return gone
}

// cut disconnects the networks of two clusters that stay peered, before all else, and returns the one of this cluster as
// it is said to be then.
func (d *Decision) cut(namespace string, have Connected) Network {
	if namespace != "" {
		d.disconnect(namespace, have)
	}
	return Network{Problem: "sharing.network is off."}
}
