package exchange

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/liqo/document"
)

// The names of steps.
const (
	StepNamespace      = "tenant-namespace"
	StepNonce          = "nonce"
	StepSigned         = "signed-nonce"
	StepTenant         = "tenant"
	StepIdentity       = "liqo-identity"
	StepKubeconfig     = "kubeconfig"
	StepSlice          = "resource-slice"
	StepAuthentication = "slice-authentication"
	StepResources      = "slice-resources"
)

// PlanConsumer decides what a consumer does. The steps are those of `liqoctl peer`, with the
// same words.
func PlanConsumer(obs Consumer) Decision {
	d := Decision{Present: obs.Signed != nil || obs.Identity != nil || len(obs.Slices) > 0 || len(obs.VirtualNodes) > 0 || obs.Kubeconfig}
	switch {
	case obs.Undecided:
		d.Ready = slices.ContainsFunc(obs.Slices, func(s Slice) bool { return s.Name == string(obs.Provider) && s.Accepted() && !s.Deleting })
	case obs.Wanted:
		if obs.Cut {
			obs.Network = d.cut(obs.cared(obs.Peer), obs.Connected)
		}
		if obs.Self != "" {
			d.Call = &Call{ClusterID: obs.Self}
		}
		obs.establish(&d)
		d.Steps = append(obs.steps(), obs.connect(&d)...)
	default:
		obs.undo(&d)
	}
	return d
}

func (obs Consumer) establish(d *Decision) {
	said := obs.Provider
	if obs.Said != nil {
		said = obs.Said.ClusterID
	}
	if !d.called(obs.Self, obs.Provider, said, "The provider has not said yet how Liqo calls it.") {
		return
	}
	namespace, ok := d.care(obs.Here, obs.Provider, obs.Peer)
	if !ok {
		return
	}
	if said := obs.Said; said != nil && said.Nonce != "" && (obs.Signed == nil || !bytes.Equal(obs.Signed.Nonce, []byte(said.Nonce))) {
		d.do(Action{Verb: Apply, Kind: SignedSecret, Namespace: namespace, Name: document.SignedNonceSecret, Cluster: obs.Provider, Peer: obs.Peer, Nonce: said.Nonce})
		d.wait(ReasonWaits, "Liqo's controllers here sign the nonce.")
		return
	}
	// What is stored is said, also if the provider has not answered yet: after a restart, that is the next step.
	if tenant, ok := obs.tenant(d); ok {
		d.Call.Tenant = tenant
	}
	if !obs.identify(d, namespace) {
		return
	}
	obs.slice(d, namespace)
	obs.restart(d, namespace)
}

// connect has Liqo connect the networks of the two clusters, and returns the steps of that. It comes last, so that
// nothing else waits for it.
func (obs Consumer) connect(d *Decision) []Step {
	if !d.Ready {
		return nil
	}
	c := &connection{
		self: obs.Self, other: obs.Provider, peer: obs.Peer, namespace: obs.cared(obs.Peer), network: obs.Network, here: obs.Here, address: obs.Address,
		serves: obs.Serves && obs.Self < obs.Provider, silent: "The provider is being asked about its network.",
	}
	if said := obs.Said; said != nil && said.Identity != nil {
		c.said, c.silent = said.Network, "The agent of the provider does not connect the networks by Liqo: update it, or use liqoctl network."
	}
	d.Call.Network = c.says()
	d.connect(c)
	return c.steps()
}

// restart has the virtual kubelets follow the provider's address, which they read when they start.
func (obs Consumer) restart(d *Decision, namespace string) {
	for _, n := range obs.VirtualNodes {
		for _, s := range obs.Slices {
			if s.Name == n.Name && s.Server != "" && s.Server != n.Server && !n.Deleting {
				d.do(Action{Verb: Note, Kind: VirtualNode, Namespace: namespace, Name: n.Name, Cluster: obs.Provider, Noted: s.Server, Restart: n.Server != ""})
			}
		}
	}
}

// tenant makes the Tenant of this cluster once the nonce is signed.
func (obs Consumer) tenant(d *Decision) ([]byte, bool) {
	switch {
	case obs.Said == nil && obs.Signed == nil:
		d.wait(ReasonWaits, "The provider is being asked for a nonce.")
		return nil, false
	case obs.Signed == nil:
		d.wait(ReasonWaits, "Liqo's controllers at the provider have not made the nonce yet. %s", obs.Said.Waits)
		return nil, false
	case len(obs.Signed.Signature) == 0 || obs.Keys == nil:
		d.wait(ReasonWaits, "Liqo's controllers here have not signed the nonce yet.")
		return nil, false
	}
	nonce, err := document.ParseNonce(obs.Signed.Nonce)
	if err != nil {
		d.wait(ReasonHostile, "The nonce in Secret %s cannot be used: %v.", obs.Signed.Name, err)
		return nil, false
	}
	tenant, err := document.NewTenant(obs.Self, *obs.Keys, nonce, obs.Signed.Signature)
	if err != nil {
		// The signature is that of an earlier nonce until Liqo has signed the new one.
		d.wait(ReasonWaits, "Liqo's controllers here have not signed the nonce yet: %v.", err)
		return nil, false
	}
	text, err := tenant.Encode()
	if err != nil {
		d.wait(ReasonHostile, "The Tenant cannot be made: %v.", err)
		return nil, false
	}
	d.wait(ReasonWaits, "The provider makes the Identity of this cluster.")
	return text, true
}

// identify keeps the Identity as the provider says, and reports whether Liqo has made its kubeconfig.
func (obs Consumer) identify(d *Decision, namespace string) bool {
	have := obs.Identity
	if have != nil && have.Deleting {
		d.wait(ReasonWaits, "The Identity %s is being deleted.", have.Name)
		return false
	}
	if obs.Said != nil && obs.Said.Identity != nil && obs.Keys != nil {
		want, err := document.ParseIdentity(obs.Said.Identity, document.Expected{Provider: obs.Provider, Consumer: obs.Self, Keys: *obs.Keys, Now: obs.Now})
		if err == nil {
			want, err = want.At(obs.Address)
		}
		switch {
		case err != nil:
			d.wait(ReasonHostile, "What the provider says is refused: %v.", err)
			return have != nil && have.Kubeconfig // what works goes on
		case have == nil || have.Type != document.IdentityControlPlane || have.ClusterID != want.ClusterID || have.Namespace != want.Namespace || outdated(have.Identity, want, *obs.Keys):
			d.do(Action{Verb: Apply, Kind: IdentityObject, Namespace: namespace, Name: obs.Provider.IdentityName(), Cluster: obs.Provider, Peer: obs.Peer, Identity: &want})
			d.wait(ReasonWaits, "Liqo's controllers here make a kubeconfig from the Identity.")
			return false
		}
		if !obs.move(d, namespace, want.APIServer) {
			return false
		}
	}
	switch {
	case have == nil:
		if said := obs.Said; d.Call.Tenant != nil && said != nil && said.Waits != "" {
			d.wait(ReasonWaits, "The provider makes the Identity of this cluster. %s", said.Waits)
		}
		return false
	case !have.Kubeconfig:
		d.wait(ReasonWaits, "Liqo's controllers here make a kubeconfig from the Identity.")
		return false
	}
	return true
}

// outdated reports whether the Identity is not for the key of this cluster, or the provider has
// a newer certificate or another CA. Liqo renews certificates by itself, so an older one is
// never written over a newer one.
func outdated(have, want document.Identity, keys document.Keys) bool {
	return !keys.Certified(have.Certificate) || ends(have.Certificate).Before(ends(want.Certificate)) || !bytes.Equal(have.CA, want.CA) && !ends(have.Certificate).After(ends(want.Certificate))
}

// ends returns when a certificate ends, the zero time if it is none.
func ends(text []byte) time.Time {
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// move has the Identity follow the provider's address. Liqo checks the API server at the address
// that it saw first, until the Identity has none: so it has none in between.
func (obs Consumer) move(d *Decision, namespace, server string) bool {
	have := obs.Identity
	step := func(to string) bool {
		d.do(Action{Verb: Move, Kind: IdentityObject, Namespace: namespace, Name: have.Name, Cluster: obs.Provider, Server: to})
		d.wait(ReasonWaits, "The provider's API server is at %s now.", server)
		return false
	}
	switch {
	case have.APIServer == server:
		return true
	case have.APIServer != "":
		return step("")
	case obs.Checked != "":
		d.wait(ReasonWaits, "Liqo stops looking for the provider at %s; it is at %s now.", obs.Checked, server)
		return false
	}
	return step(server)
}

// slice keeps the ResourceSlice.
func (obs Consumer) slice(d *Decision, namespace string) {
	var own *Slice
	for i := range obs.Slices {
		if obs.Slices[i].Name == string(obs.Provider) {
			own = &obs.Slices[i]
		}
	}
	switch {
	case own != nil && own.Deleting:
		d.wait(ReasonWaits, "The ResourceSlice %s is being deleted.", own.Name)
	case own == nil || !maps.Equal(own.Asks, obs.Asks):
		d.do(Action{Verb: Apply, Kind: SliceObject, Namespace: namespace, Name: string(obs.Provider), Cluster: obs.Provider, Peer: obs.Peer, Asks: obs.Asks})
		d.wait(ReasonWaits, "Liqo asks the provider for resources.")
	case own.Authentication == document.Denied || own.Resources == document.Denied:
		d.wait(ReasonDenied, "The provider's Liqo denies the resources: %s", own.Message)
	case !own.Accepted():
		d.wait(ReasonWaits, "Liqo asks the provider for resources.")
	case d.Reason != ReasonHostile:
		d.Ready = true
		d.wait(ReasonReady, "Liqo gives this cluster resources of the provider.")
	}
}

// steps returns how far it is.
func (obs Consumer) steps() []Step {
	cared, kubeconfig := false, obs.Identity != nil && obs.Identity.Kubeconfig
	for _, n := range obs.Namespaces {
		cared = cared || n.Peer == obs.Peer && !n.Deleting
	}
	var own Slice
	for _, s := range obs.Slices {
		if s.Name == string(obs.Provider) {
			own = s
		}
	}
	identity := obs.Identity != nil
	signed := obs.Signed != nil && len(obs.Signed.Signature) > 0
	return []Step{
		{StepNamespace, "(local) Tenant namespace correctly ensured", cared},
		{StepNonce, "(remote) Nonce retrieved", obs.Signed != nil || identity},
		{StepSigned, "(local) Nonce is signed", signed || identity},
		{StepTenant, "(remote) Tenant status is filled", obs.Said != nil && obs.Said.Identity != nil || identity},
		{StepIdentity, "(local) Identity correctly applied on consumer cluster", identity},
		{StepKubeconfig, "(local) Identity status is filled", kubeconfig},
		{StepSlice, "(local) ResourceSlice created", own.Name != ""},
		{StepAuthentication, "(local) ResourceSlice authentication: Accepted", own.Authentication == document.Accepted},
		{StepResources, "(local) ResourceSlice resources: Accepted", own.Resources == document.Accepted},
	}
}

// undo removes what the consumer has, as `liqoctl unpeer` does: what runs there first. The Secret
// with the kubeconfig goes when Liqo has removed all that is ours at the provider; only then may
// the provider take our rights away.
func (obs Consumer) undo(d *Decision) {
	namespace := obs.cared(obs.Peer)
	if namespace == "" {
		return
	}
	d.Busy = true
	if obs.Gone {
		if obs.Checked != "" && !obs.Abandoned {
			d.do(Action{Verb: Abandon, Kind: ForeignCluster, Name: string(obs.Provider), Cluster: obs.Provider})
		}
		d.Busy = false // nobody waits for what the provider keeps
	}
	apart := true
	if obs.Cut || !obs.Serves && len(obs.Slices)+len(obs.VirtualNodes) == 0 && obs.Identity == nil && !obs.Kubeconfig {
		apart = d.disconnect(namespace, obs.Connected)
	}
	nodes := func() {
		for _, n := range obs.VirtualNodes {
			d.remove(VirtualNode, namespace, n.Object)
		}
	}
	switch {
	case len(obs.Slices) > 0:
		for _, s := range obs.Slices {
			d.remove(SliceObject, namespace, s.Object)
		}
		if obs.Gone {
			nodes()
			obs.reconnect(d, namespace)
		}
		d.wait(ReasonRemoving, "Liqo gives the resources back to the provider.")
	case len(obs.VirtualNodes) > 0:
		nodes()
		d.wait(ReasonRemoving, "Liqo drains and removes the virtual node.")
	case obs.Identity != nil || obs.Kubeconfig:
		if obs.Identity != nil {
			d.remove(IdentityObject, namespace, obs.Identity.Object)
		}
		d.wait(ReasonRemoving, "Liqo removes what this cluster has at the provider.")
	default:
		d.Busy = false
		switch {
		case !apart:
			d.wait(ReasonRemoving, "Liqo disconnects the networks of the two clusters.")
		case obs.Signed != nil:
			d.remove(SignedSecret, namespace, obs.Signed.Object)
		case !obs.Serves:
			d.release(obs.Here, obs.Provider, obs.Peer)
		}
	}
}

// reconnect has Liqo connect anew to a provider that has taken the rights away before it could remove
// what it had there: it tries that for ever, and knows of nothing there after another text of the URL.
func (obs Consumer) reconnect(d *Decision, namespace string) {
	i := obs.Identity
	if i == nil || i.Deleting || i.APIServer == "" || strings.HasSuffix(i.APIServer, "/") ||
		slices.ContainsFunc(obs.Slices, func(s Slice) bool { return !s.Deleting }) {
		return
	}
	d.do(Action{Verb: Move, Kind: IdentityObject, Namespace: namespace, Name: i.Name, Cluster: obs.Provider, Server: i.APIServer + "/"})
}
