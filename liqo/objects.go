package liqo

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// object is as much as matters of all kinds of the exchange. They have no fields of one name that
// differ in their types.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Data map[string][]byte `json:"data,omitempty"` // of a Secret
	Spec struct {
		ClusterID       string                     `json:"clusterID,omitempty"`
		PublicKey       []byte                     `json:"publicKey,omitempty"`
		CSR             []byte                     `json:"csr,omitempty"`
		Signature       []byte                     `json:"signature,omitempty"`
		TenantCondition string                     `json:"tenantCondition,omitempty"`
		Type            string                     `json:"type,omitempty"`
		Namespace       string                     `json:"namespace,omitempty"`
		AuthParams      *authParams                `json:"authParams,omitempty"`
		Resources       map[string]document.Amount `json:"resources,omitempty"`
		Endpoint        *endpoint                  `json:"endpoint,omitempty"`
		MTU             int                        `json:"mtu,omitempty"`
		Remote          *clusterConfig             `json:"remote,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		document.SliceStatus
		TenantNamespace     string         `json:"tenantNamespace,omitempty"`
		AuthParams          *authParams    `json:"authParams,omitempty"`
		KubeconfigSecretRef *reference     `json:"kubeconfigSecretRef,omitempty"`
		Endpoint            *endpoint      `json:"endpoint,omitempty"`
		SecretRef           *reference     `json:"secretRef,omitempty"`
		Remote              *clusterConfig `json:"remote,omitempty"`
		CIDR                string         `json:"cidr,omitempty"` // of a Network
	} `json:"status,omitzero"`
}

type reference struct {
	Name string `json:"name"`
}

// authParams are those of a Tenant and an Identity (apis/authentication/v1beta1/common_types.go).
type authParams struct {
	CA        []byte `json:"ca,omitempty"`
	SignedCRT []byte `json:"signedCRT,omitempty"`
	APIServer string `json:"apiServer,omitempty"`
}

// endpoint is that of a gateway (apis/networking/v1beta1/gatewayserver_types.go). A GatewayServer says the type
// of its Service.
type endpoint struct {
	Addresses   []string `json:"addresses,omitempty"`
	Port        int      `json:"port,omitempty"`
	Protocol    string   `json:"protocol,omitempty"`
	ServiceType string   `json:"serviceType,omitempty"`
}

// clusterConfig are the ranges in a Configuration.
type clusterConfig struct {
	CIDR struct {
		Pod      []string `json:"pod,omitempty"`
		External []string `json:"external,omitempty"`
	} `json:"cidr"`
}

// DeepCopyObject implements runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	out := *o
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Data, out.Spec.Resources = maps.Clone(o.Data), maps.Clone(o.Spec.Resources)
	return &out
}

// maxKept bounds what is kept of one field of a Secret, in bytes: a nonce has 88, its signature with RSA a
// thousand at most.
const maxKept = 1 << 10

// trim drops what nobody reads, and what others may have made long: of Secrets, all but nonces and the public keys of gateways, of annotations,
// all but the agent's, and of the amounts that a ResourceSlice asks for, all but those that the agent
// applied. The others are people's.
func trim(o *object) {
	if len(o.Spec.Resources) > 0 && o.ManagedFields != nil {
		var ours api.Fields
		for _, m := range o.ManagedFields {
			if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply {
				ours = api.FieldsOf(m.FieldsV1).At("f:spec", "f:resources")
			}
		}
		maps.DeleteFunc(o.Spec.Resources, func(name string, _ document.Amount) bool { return !ours.Has("f:" + name) })
	}
	o.ManagedFields = nil
	if at, ok := o.Annotations[document.AnnotationAddress]; ok {
		o.Annotations = map[string]string{document.AnnotationAddress: at}
	} else {
		o.Annotations = nil
	}
	if o.Data != nil {
		kept, fields := make(map[string][]byte), []string{document.FieldNonce, document.FieldSignedNonce}
		if o.Labels[document.LabelGateway] != "" {
			fields = []string{document.FieldPublicKey}
		}
		for _, field := range fields {
			if value, ok := o.Data[field]; ok && len(value) <= maxKept {
				kept[field] = value
			}
		}
		o.Data = kept
	}
}

// checked is as much as matters of Liqo's own ForeignCluster.
type checked struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		APIServerURL string                 `json:"apiServerUrl,omitempty"`
		Conditions   []shown                `json:"conditions,omitempty"`
		Modules      map[string]shownModule `json:"modules,omitempty"`
	} `json:"status,omitzero"`
}

type shownModule struct {
	Conditions []shown `json:"conditions,omitempty"`
}

// shown is a condition of Liqo's, which Kubernetes' tools do not take for one (apis/core/v1beta1).
type shown struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// maxShown bounds the conditions that are passed on; Liqo has ten.
const maxShown = 20

// shown returns the conditions for people.
func (c *checked) shown() []exchange.Shown {
	var all []exchange.Shown
	add := func(module string, conditions []shown) {
		for _, s := range conditions {
			if len(all) < maxShown {
				all = append(all, exchange.Shown{Module: module, Type: s.Type, Status: s.Status, Message: text.Sentence(s.Message)})
			}
		}
	}
	add("", c.Status.Conditions)
	for _, module := range slices.Sorted(maps.Keys(c.Status.Modules)) {
		add(module, c.Status.Modules[module].Conditions)
	}
	return all
}

// DeepCopyObject implements runtime.Object.
func (c *checked) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions, out.Status.Modules = slices.Clone(c.Status.Conditions), maps.Clone(c.Status.Modules)
	return &out
}

// configMap is the one with Liqo's ID of this cluster.
type configMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Data map[string]string `json:"data,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *configMap) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Data = maps.Clone(c.Data)
	return &out
}

// deployment is one of those that run Liqo's controllers.
type deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		ReadyReplicas int `json:"readyReplicas,omitempty"`
	} `json:"status,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (d *deployment) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// controlPlane is a node with the API server.
type controlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		Addresses []nodeAddress `json:"addresses,omitempty"`
	} `json:"status,omitzero"`
}

type nodeAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// DeepCopyObject implements runtime.Object.
func (c *controlPlane) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Addresses = slices.Clone(c.Status.Addresses)
	return &out
}

// addresses are those of the nodes from which Liqo takes the address of this cluster.
func (s *session) addresses() string {
	var all []string
	for _, n := range s.planes.All() {
		for _, a := range n.Status.Addresses {
			all = append(all, a.Address)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// remote returns the ID of the other cluster that an object is about.
func remote(o metav1.Object) document.ClusterID {
	return document.ClusterID(o.GetLabels()[document.LabelRemoteCluster])
}

// inCare returns the peer in whose care an object is, "" for none.
func inCare(o metav1.Object) peer.ClusterID { return peer.ClusterID(o.GetLabels()[api.LabelClusterID]) }

// byRemote and byPeer are what caches find objects by.
func byRemote(id document.ClusterID) string { return "cluster/" + string(id) }
func byPeer(id peer.ClusterID) string       { return "peer/" + string(id) }

func index(o metav1.Object) (keys []string) {
	if id := remote(o); id != "" {
		keys = append(keys, byRemote(id))
	}
	if id := inCare(o); id != "" {
		keys = append(keys, byPeer(id))
	}
	return keys
}

// named returns the namespaces with a key, by their names: which one is taken must not change.
func (s *session) named(key string) []*object {
	return slices.SortedFunc(slices.Values(s.namespaces.By(key)), func(a, b *object) int { return strings.Compare(a.Name, b.Name) })
}

// about describes an object for a plan.
func about(o metav1.Object) exchange.Object {
	return exchange.Object{Name: o.GetName(), UID: o.GetUID(), Deleting: o.GetDeletionTimestamp() != nil}
}

// asks returns the amounts that a ResourceSlice asks for on behalf of the agent.
func asks(o *object) map[string]string {
	out := make(map[string]string)
	for name, amount := range o.Spec.Resources {
		out[name] = string(amount)
	}
	return out
}

func tenantOf(o *object) *exchange.Tenant {
	t := &exchange.Tenant{
		Object: about(o), Drained: o.Spec.TenantCondition == conditionDrained, Addresses: o.Annotations[document.AnnotationAddress],
		Tenant: document.Tenant{ClusterID: document.ClusterID(o.Spec.ClusterID), PublicKey: o.Spec.PublicKey, CSR: o.Spec.CSR, Signature: o.Spec.Signature},
	}
	if p := o.Status.AuthParams; p != nil && o.Status.TenantNamespace != "" && len(p.SignedCRT) > 0 {
		t.Auth = &document.Identity{Namespace: o.Status.TenantNamespace, APIServer: p.APIServer, CA: p.CA, Certificate: p.SignedCRT}
	}
	return t
}

func identityOf(o *object) *exchange.Identity {
	i := &exchange.Identity{Object: about(o), Type: o.Spec.Type, Kubeconfig: o.Status.KubeconfigSecretRef != nil && o.Status.KubeconfigSecretRef.Name != ""}
	i.Identity.ClusterID, i.Identity.Namespace = document.ClusterID(o.Spec.ClusterID), o.Spec.Namespace
	if p := o.Spec.AuthParams; p != nil {
		i.APIServer, i.CA, i.Certificate = p.APIServer, p.CA, p.SignedCRT
	}
	return i
}

func secretOf(o *object) *exchange.Secret {
	return &exchange.Secret{Object: about(o), Nonce: o.Data[document.FieldNonce], Signature: o.Data[document.FieldSignedNonce]}
}

// here returns what there is about another cluster, for a peer.
func (s *session) here(id document.ClusterID, of peer.ClusterID) exchange.Here {
	var h exchange.Here
	if id == "" {
		return h
	}
	key, inside := byRemote(id), ""
	for _, n := range s.named(key) {
		h.Namespaces = append(h.Namespaces, exchange.Namespace{Object: about(n), Peer: inCare(n), Made: n.Labels[api.LabelManagedBy] == api.ManagedByAgent})
		if inside == "" && inCare(n) == of {
			inside = n.Name
		}
	}
	if inside == "" {
		return h
	}
	for _, o := range s.secrets.By(key) {
		switch {
		case o.Namespace != inside:
		case o.Labels[document.LabelNonce] != "":
			h.Nonce = secretOf(o)
		case o.Labels[document.LabelSignedNonce] != "":
			h.Signed = secretOf(o)
		case o.Name == document.CertificateSecret:
			certificate := about(o)
			h.Certificate = &certificate
		case o.Name == kubeconfigPrefix+id.IdentityName():
			h.Kubeconfig = true
		}
	}
	for _, o := range s.tenants.By(key) {
		if o.Namespace == inside {
			h.Tenant = tenantOf(o)
		}
	}
	for _, o := range s.identities.By(key) {
		if o.Namespace == inside && o.Name == id.IdentityName() {
			h.Identity = identityOf(o)
		}
	}
	for _, o := range s.slices.By(key) {
		switch {
		case o.Namespace != inside:
		case o.Labels[labelReplicated] != "":
			h.Replicated = append(h.Replicated, exchange.Replica{Object: about(o), Kind: exchange.SliceObject})
		case o.Labels[document.LabelReplicationTo] == string(id):
			own := exchange.Slice{Object: about(o), Slice: o.Status.Review(), Asks: asks(o)}
			if i := s.identities.Get(inside, document.SliceIdentityName(o.Name)); i != nil {
				own.Server = identityOf(i).APIServer
			}
			h.Slices = append(h.Slices, own)
		}
	}
	for _, o := range s.renews.By(key) {
		if o.Namespace == inside && o.Labels[labelReplicated] != "" {
			h.Replicated = append(h.Replicated, exchange.Replica{Object: about(o), Kind: exchange.RenewObject})
		}
	}
	for _, o := range s.nodes.By(key) {
		if o.Namespace == inside {
			h.VirtualNodes = append(h.VirtualNodes, exchange.Node{Object: about(o), Server: o.Annotations[document.AnnotationAddress]})
		}
	}
	h.Connected = s.connected(inside, id)
	if fc := s.foreign.Get("", string(id)); fc != nil {
		foreign := about(fc)
		h.Foreign, h.Checked, h.Shown = &foreign, strings.TrimSpace(fc.Status.APIServerURL), fc.shown()
		h.Abandoned = fc.Annotations[annotationUnreachable] == "true"
	}
	return h
}
