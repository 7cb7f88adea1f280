package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/workload"
)

// UninstallConfig says where Uninstall works, and what it deletes besides what the
// agent made.
type UninstallConfig struct {
	// Kubeconfig is the setting as in conn.Config; Namespace as in Config.
	Kubeconfig, Namespace string
	// Webhook and Offloading are the names of the configuration of the admission
	// webhook, and of what lets pods on virtual nodes.
	Webhook, Offloading string
	// All takes the ForeignClusters and SearchDomains that people wrote, and what they
	// set in the ClusterConfig.
	All bool
	// CRDs takes the custom resource definitions, and so every object of theirs.
	CRDs bool
	// Identity takes the ConfigMap with the cluster ID, if the agent made it.
	Identity bool
}

// Uninstalled is what Uninstall did. Objects are named for people: "ForeignCluster barn".
type Uninstalled struct {
	// Deleted are the objects that are gone, or about to go: a namespace takes a while.
	Deleted []string
	// Kept are the objects that people wrote.
	Kept []string
	// Failed are those that are still there, each with the reason.
	Failed []string
}

// Uninstall deletes what the agent made in the local API server. No agent may run
// meanwhile: it would make all of it again. It can be interrupted and called again,
// and goes on as far as it can: what cannot be listed or deleted is in Failed. The error wraps
// conn.ErrNoKubeconfig or conn.ErrSwitchedOff when there is no API server to ask; every other one says that it cannot be asked.
func Uninstall(ctx context.Context, cfg UninstallConfig) (Uninstalled, error) {
	return uninstall(ctx, cfg, true)
}

// UninstallPeoples is Uninstall for what people wrote and for the custom resource
// definitions only. The agent's own rights are not enough for it.
func UninstallPeoples(ctx context.Context, cfg UninstallConfig) (Uninstalled, error) {
	return uninstall(ctx, cfg, true, "ForeignCluster", "SearchDomain", "ClusterConfig", "CustomResourceDefinition")
}

// Inventory returns what Uninstall would do, and does nothing.
func Inventory(ctx context.Context, cfg UninstallConfig) (Uninstalled, error) {
	return uninstall(ctx, cfg, false)
}

// uninstall looks at the kinds in only, or at all when that is empty.
func uninstall(ctx context.Context, cfg UninstallConfig, really bool, only ...string) (Uninstalled, error) {
	config, _, err := conn.LoadKubeconfig(cfg.Kubeconfig)
	if err != nil {
		return Uninstalled{}, err
	}
	c, err := kube.New(config)
	if err != nil {
		return Uninstalled{}, err
	}
	defer c.Close()
	// One question that every API server answers tells whether there is one.
	if err := c.Get(ctx, namespacePath+cfg.Namespace, &struct{}{}); err != nil && !isAnswer(err) {
		return Uninstalled{}, fmt.Errorf("the API server at %s does not answer: %w", config.Host, err)
	}
	w := &uninstaller{UninstallConfig: cfg, client: c, really: really}
	for _, k := range uninstallOrder(cfg) {
		if len(only) == 0 || slices.Contains(only, k.name) {
			w.kind(ctx, k)
		}
	}
	return w.out, nil
}

// isAnswer reports whether an error is an answer of an API server's.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// installed is any object, as far as Uninstall reads it.
type installed struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec json.RawMessage `json:"spec"`
	// Status is that of a quota.
	Status struct {
		Used struct {
			Claims string `json:"persistentvolumeclaims"`
		} `json:"used"`
	} `json:"status"`
}

// DeepCopyObject implements runtime.Object.
func (t *installed) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = slices.Clone(t.Spec)
	return &out
}

func (t *installed) ours() bool { return t.Labels[api.LabelManagedBy] == api.ManagedByAgent }

// uninstallKind is one kind of objects that Uninstall looks at.
type uninstallKind struct {
	name     string
	path     string // of the collection
	object   string // name of the only one of interest; "" to list them
	selector string
	// through is the collection of what the agent makes within each such object, with
	// the same labels: the object is the agent's even if it has lost its own.
	through string
	// takes reports whether an object goes; nil for every one that the agent made.
	takes func(*installed) bool
	// unless is a collection of which no object with the label of a consumer may be in an object
	// that goes: with the claims in a namespace, data would go that is not ours.
	unless string
	// shows reports whether people are told that an object stays.
	shows bool
}

// uninstallOrder are the kinds in the order in which they go: what lets peers in first,
// what people see last.
func uninstallOrder(cfg UninstallConfig) []uninstallKind {
	every := func(*installed) bool { return true }
	const guests = api.OwnObjects + "," + workload.LabelOriginCluster
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	kinds := []uninstallKind{
		{name: "ClusterRoleBinding", path: rbac + "clusterrolebindings", selector: api.OwnObjects, takes: isAccess},
		{name: "ClusterRole", path: rbac + "clusterroles", selector: api.OwnObjects, takes: isAccess},
		{name: "PeeringRequest", path: api.Collection(api.GroupVersion, api.PluralPeeringRequests), takes: every},
		{name: "Advertisement", path: api.Collection(api.SharingGroupVersion, api.PluralAdvertisements), takes: every},
		{name: "Node", path: "/api/v1/nodes", selector: api.OwnObjects + "," + workload.LabelType + "=" + workload.VirtualNode},
		{name: "Namespace", path: "/api/v1/namespaces", selector: guests, through: "/api/v1/resourcequotas", takes: every, unless: "/api/v1/persistentvolumeclaims"},
		{name: "StorageClass", path: "/apis/storage.k8s.io/v1/storageclasses", selector: api.OwnObjects},
		{name: "Secret", path: namespacePath + cfg.Namespace + "/secrets", selector: api.OwnObjects,
			takes: func(t *installed) bool { return strings.HasPrefix(t.Name, plan.SecretName("")) }},
		{name: "ForeignCluster", path: api.Collection(api.GroupVersion, api.PluralForeignClusters), shows: true, takes: func(t *installed) bool {
			return cfg.All || t.ours() && t.Labels[api.LabelDiscoveryType] != ""
		}},
		{name: "SearchDomain", path: api.Collection(api.GroupVersion, api.PluralSearchDomains), shows: true, takes: func(*installed) bool { return cfg.All }},
		{name: "ClusterConfig", path: api.Collection(api.ConfigGroupVersion, api.PluralClusterConfigs), object: api.ClusterConfigName, shows: true,
			takes: func(t *installed) bool { return cfg.All || t.ours() && emptySpec(t.Spec) }},
		{name: "ValidatingWebhookConfiguration", path: webhookPath, object: cfg.Webhook},
		{name: "MutatingWebhookConfiguration", path: admissionPath + "v1/mutatingwebhookconfigurations", object: cfg.Offloading},
	}
	for _, version := range []string{"v1", "v1beta1"} {
		kinds = append(kinds,
			uninstallKind{name: "MutatingAdmissionPolicyBinding", path: admissionPath + version + "/mutatingadmissionpolicybindings", object: cfg.Offloading},
			uninstallKind{name: "MutatingAdmissionPolicy", path: admissionPath + version + "/mutatingadmissionpolicies", object: cfg.Offloading})
	}
	if cfg.Identity {
		kinds = append(kinds, uninstallKind{name: "ConfigMap", path: namespacePath + cfg.Namespace + "/configmaps", object: api.ClusterIDConfigMap})
	}
	if cfg.CRDs {
		for _, m := range api.CRDs() {
			kinds = append(kinds, uninstallKind{name: "CustomResourceDefinition", path: CRDPath, object: m.Name})
		}
	}
	return kinds
}

func isAccess(t *installed) bool { return strings.HasPrefix(t.Name, api.PeerRolePrefix) }

// emptySpec reports whether a ClusterConfig sets nothing.
func emptySpec(spec json.RawMessage) bool {
	var content any
	if len(spec) == 0 || json.Unmarshal(spec, &content) != nil {
		return len(spec) == 0
	}
	return setsNothing(content)
}

func setsNothing(content any) bool {
	m, ok := content.(map[string]any)
	if !ok {
		return content == nil
	}
	for _, value := range m {
		if !setsNothing(value) {
			return false
		}
	}
	return true
}

// uninstaller is one run of Uninstall.
type uninstaller struct {
	UninstallConfig
	client *kube.Client
	really bool
	out    Uninstalled
}

func (w *uninstaller) kind(ctx context.Context, k uninstallKind) {
	objects, err := w.list(ctx, k)
	if apierrors.IsNotFound(err) {
		return // neither the object nor perhaps the kind
	}
	if err != nil {
		w.out.Failed = append(w.out.Failed, fmt.Sprintf("%ss: %v", k.name, err))
		return
	}
	holding, err := w.holding(ctx, k)
	if err != nil {
		w.out.Failed = append(w.out.Failed, fmt.Sprintf("%ss: %v", k.name, err))
		return
	}
	for _, o := range objects {
		label := k.name + " " + o.Name
		if what := holding(o.Name); what != "" {
			w.out.Kept = append(w.out.Kept, label+", which "+what+" claims of a cluster")
			if err := w.endPods(ctx, o.Name); err != nil {
				w.out.Failed = append(w.out.Failed, fmt.Sprintf("%s: %v", label, err))
			}
			continue
		}
		takes := k.takes
		if takes == nil {
			takes = (*installed).ours
		}
		if !takes(o) {
			if k.shows {
				w.out.Kept = append(w.out.Kept, label)
			}
			err = w.letGo(ctx, k, o)
		} else if err = w.delete(ctx, k, o); err == nil {
			w.out.Deleted = append(w.out.Deleted, label)
		}
		if err != nil {
			w.out.Failed = append(w.out.Failed, fmt.Sprintf("%s: %v", label, err))
		}
	}
}

// holding returns whether objects of a kind stay for what is in them: they have it, or may have it, or "" if they have not.
func (w *uninstaller) holding(ctx context.Context, k uninstallKind) (func(name string) string, error) {
	if k.unless == "" {
		return func(string) string { return "" }, nil
	}
	things := kube.Kind[*installed]{Fresh: func() *installed { return &installed{} }}
	within, err := kube.List(ctx, w.client, kube.Query{Path: k.unless, Labels: workload.LabelOriginCluster}, things)
	if apierrors.IsForbidden(err) {
		// It was allowed, perhaps, when they came. The quotas count them.
		empty := make(map[string]bool)
		quotas, err := kube.List(ctx, w.client, kube.Query{Path: k.through, Labels: k.selector}, things)
		for _, q := range quotas {
			empty[q.Namespace] = q.Status.Used.Claims == "" || q.Status.Used.Claims == "0"
		}
		return func(name string) string {
			if empty[name] {
				return ""
			}
			return "may have"
		}, err
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	out := make(map[string]bool)
	for _, o := range within {
		out[o.Namespace] = true
	}
	return func(name string) string {
		if out[name] {
			return "has"
		}
		return ""
	}, err
}

// endPods deletes the pods of a consumer in a namespace that stays.
func (w *uninstaller) endPods(ctx context.Context, namespace string) error {
	path := "/api/v1/namespaces/" + namespace + "/pods"
	pods, err := kube.List(ctx, w.client, kube.Query{Path: path, Labels: workload.LabelOriginCluster}, kube.Kind[*installed]{Fresh: func() *installed { return &installed{} }})
	errs := []error{err}
	for _, pod := range pods {
		if !w.really {
			continue
		}
		if err := w.client.Delete(ctx, path+"/"+pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}); !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (w *uninstaller) list(ctx context.Context, k uninstallKind) ([]*installed, error) {
	if k.object != "" {
		one := &installed{}
		err := w.client.Get(ctx, k.path+"/"+k.object, one)
		return []*installed{one}, err
	}
	things := kube.Kind[*installed]{Fresh: func() *installed { return &installed{} }}
	all, err := kube.List(ctx, w.client, kube.Query{Path: k.path, Labels: k.selector}, things)
	if err != nil || k.through == "" {
		return all, err
	}
	within, err := kube.List(ctx, w.client, kube.Query{Path: k.through, Labels: k.selector}, things)
	if err != nil {
		return nil, err
	}
	for _, o := range within {
		if slices.ContainsFunc(all, func(t *installed) bool { return t.Name == o.Namespace }) {
			continue
		}
		lost := &installed{}
		err := w.client.Get(ctx, k.path+"/"+o.Namespace, lost)
		if err == nil {
			all = append(all, lost)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return all, nil
}

// delete deletes one object, and takes our finalizer from it first.
func (w *uninstaller) delete(ctx context.Context, k uninstallKind, o *installed) error {
	if !w.really {
		return nil
	}
	if err := w.letGo(ctx, k, o); err != nil {
		return err
	}
	err := w.client.Delete(ctx, k.path+"/"+o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// letGo takes our finalizer from an object: nobody else could delete it when there
// is no agent any more.
func (w *uninstaller) letGo(ctx context.Context, k uninstallKind, o *installed) error {
	at := slices.Index(o.Finalizers, api.FinalizerPeering)
	if !w.really || at < 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion,
		"finalizers": append([]string{}, slices.Delete(slices.Clone(o.Finalizers), at, at+1)...),
	}})
	if err != nil {
		return err
	}
	err = w.client.Patch(ctx, k.path+"/"+o.Name, fields.ManagerForeignCluster, types.MergePatchType, patch, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
