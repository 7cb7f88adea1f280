package peering

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
	"liqo.io/agent/sharing/workload"
)

// ClearConfig says where Clear works, and what it takes away besides what the agent
// made.
type ClearConfig struct {
	// Kubeconfig is the setting as in Config.Kubeconfig; Namespace as in Config.
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

// Cleared is what Clear did. Objects are named for people: "ForeignCluster barn".
type Cleared struct {
	// Deleted are the objects that are gone, or about to go: a namespace takes a while.
	Deleted []string
	// Kept are the objects that people wrote.
	Kept []string
	// Failed are those that are still there, each with the reason.
	Failed []string
}

// Clear takes what the agent made out of the local API server. No agent may work
// with it meanwhile: it would make all of it anew. It can be cut off and called
// again, and goes on as far as it can: what cannot be listed or deleted is in
// Failed. The error wraps ErrNoKubeconfig or ErrSwitchedOff when there is no API
// server to ask; every other one says that it cannot be asked.
func Clear(ctx context.Context, cfg ClearConfig) (Cleared, error) {
	return clearance(ctx, cfg, true)
}

// ClearPeoples is Clear for what people wrote and for the custom resource
// definitions only. The agent's own rights are not enough for it.
func ClearPeoples(ctx context.Context, cfg ClearConfig) (Cleared, error) {
	return clearance(ctx, cfg, true, "ForeignCluster", "SearchDomain", "ClusterConfig", "CustomResourceDefinition")
}

// Inventory returns what Clear would do, and does nothing.
func Inventory(ctx context.Context, cfg ClearConfig) (Cleared, error) {
	return clearance(ctx, cfg, false)
}

// clearance looks at the kinds called only, or at all when that is empty.
func clearance(ctx context.Context, cfg ClearConfig, really bool, only ...string) (Cleared, error) {
	found, err := newLocator().load(cfg.Kubeconfig)
	if err != nil {
		return Cleared{}, err
	}
	c, err := newClient(found.config, nil)
	if err != nil {
		return Cleared{}, err
	}
	defer c.close()
	// One question that every API server answers tells whether there is one.
	if err := c.getJSON(ctx, namespacePath+cfg.Namespace, nil, &struct{}{}); err != nil && !isAnswer(err) {
		return Cleared{}, fmt.Errorf("the API server at %s does not answer: %w", found.config.Host, err)
	}
	w := &clearing{ClearConfig: cfg, client: c, really: really}
	for _, k := range cleared(cfg) {
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

// thing is any object, as far as Clear looks at it.
type thing struct {
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       json.RawMessage   `json:"spec"`
	APIVersion string            `json:"apiVersion"`
}

func (t thing) ours() bool { return t.Metadata.Labels[api.LabelManagedBy] == api.ManagedByAgent }

// clearedKind is one kind of objects that Clear looks at.
type clearedKind struct {
	name     string
	path     string // of the collection
	object   string // name of the only one of interest; "" to list them
	selector string
	// through is the collection of what the agent makes within each such object, with
	// the same labels: the object is the agent's even if it has lost its own.
	through string
	// takes reports whether an object goes; nil for every one that the agent made.
	takes func(thing) bool
	// shows reports whether people are told that an object stays.
	shows bool
}

// cleared are the kinds in the order in which they go: what lets peers in first,
// what people see last.
func cleared(cfg ClearConfig) []clearedKind {
	every := func(thing) bool { return true }
	const guests = ownObjects + "," + workload.LabelOriginCluster
	const rbac, admission = "/apis/" + rbacGroup + "/v1/", "/apis/admissionregistration.k8s.io/"
	kinds := []clearedKind{
		{name: "ClusterRoleBinding", path: rbac + "clusterrolebindings", selector: ownObjects, takes: isAccess},
		{name: "ClusterRole", path: rbac + "clusterroles", selector: ownObjects, takes: isAccess},
		{name: "PeeringRequest", path: collection(api.GroupVersion, api.PluralPeeringRequests), takes: every},
		{name: "Advertisement", path: collection(api.SharingGroupVersion, api.PluralAdvertisements), takes: every},
		{name: "Node", path: "/api/v1/nodes", selector: ownObjects + "," + workload.LabelType + "=" + workload.VirtualNode},
		{name: "Namespace", path: "/api/v1/namespaces", selector: guests, through: "/api/v1/resourcequotas", takes: every},
		{name: "Secret", path: namespacePath + cfg.Namespace + "/secrets", selector: ownObjects,
			takes: func(t thing) bool { return strings.HasPrefix(t.Metadata.Name, SecretName("")) }},
		{name: "ForeignCluster", path: collection(api.GroupVersion, api.PluralForeignClusters), shows: true, takes: func(t thing) bool {
			return cfg.All || t.ours() && t.Metadata.Labels[api.LabelDiscoveryType] != ""
		}},
		{name: "SearchDomain", path: collection(api.GroupVersion, api.PluralSearchDomains), shows: true, takes: func(thing) bool { return cfg.All }},
		{name: "ClusterConfig", path: collection(api.ConfigGroupVersion, api.PluralClusterConfigs), object: api.ClusterConfigName, shows: true,
			takes: func(t thing) bool { return cfg.All || t.ours() && emptySpec(t.Spec) }},
		{name: "ValidatingWebhookConfiguration", path: strings.TrimSuffix(webhookPath, "/"), object: cfg.Webhook},
		{name: "MutatingWebhookConfiguration", path: admission + "v1/mutatingwebhookconfigurations", object: cfg.Offloading},
	}
	for _, version := range []string{"v1", "v1beta1"} {
		kinds = append(kinds,
			clearedKind{name: "MutatingAdmissionPolicyBinding", path: admission + version + "/mutatingadmissionpolicybindings", object: cfg.Offloading},
			clearedKind{name: "MutatingAdmissionPolicy", path: admission + version + "/mutatingadmissionpolicies", object: cfg.Offloading})
	}
	if cfg.Identity {
		kinds = append(kinds, clearedKind{name: "ConfigMap", path: namespacePath + cfg.Namespace + "/configmaps", object: ClusterIDConfigMap})
	}
	if cfg.CRDs {
		for _, m := range api.CRDs() {
			kinds = append(kinds, clearedKind{name: "CustomResourceDefinition", path: strings.TrimSuffix(crdPath, "/"), object: m.Name})
		}
	}
	return kinds
}

func isAccess(t thing) bool { return strings.HasPrefix(t.Metadata.Name, accessPrefix) }

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

// clearing is one run of Clear.
type clearing struct {
	ClearConfig
	client *client
	really bool
	out    Cleared
}

func (w *clearing) kind(ctx context.Context, k clearedKind) {
	objects, err := w.list(ctx, k)
	if apierrors.IsNotFound(err) {
		return // neither the object nor perhaps the kind
	}
	if err != nil {
		w.out.Failed = append(w.out.Failed, fmt.Sprintf("%ss: %v", k.name, err))
		return
	}
	for _, o := range objects {
		label := k.name + " " + o.Metadata.Name
		takes := k.takes
		if takes == nil {
			takes = thing.ours
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

func (w *clearing) list(ctx context.Context, k clearedKind) ([]thing, error) {
	if k.object != "" {
		var one thing
		err := w.client.getJSON(ctx, k.path+"/"+k.object, nil, &one)
		return []thing{one}, err
	}
	params := map[string]string{}
	if k.selector != "" {
		params["labelSelector"] = k.selector
	}
	var all struct{ Items []thing }
	if err := w.client.getJSON(ctx, k.path, params, &all); err != nil || k.through == "" {
		return all.Items, err
	}
	var within struct{ Items []thing }
	if err := w.client.getJSON(ctx, k.through, params, &within); err != nil {
		return nil, err
	}
	for _, o := range within.Items {
		if slices.ContainsFunc(all.Items, func(t thing) bool { return t.Metadata.Name == o.Metadata.Namespace }) {
			continue
		}
		var lost thing
		err := w.client.getJSON(ctx, k.path+"/"+o.Metadata.Namespace, nil, &lost)
		if err == nil {
			all.Items = append(all.Items, lost)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return all.Items, nil
}

// delete deletes one object, and takes our finalizer from it first.
func (w *clearing) delete(ctx context.Context, k clearedKind, o thing) error {
	if !w.really {
		return nil
	}
	if err := w.letGo(ctx, k, o); err != nil {
		return err
	}
	options, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.Metadata.UID}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = kube.Body(w.client.rest.Delete().AbsPath(k.path, o.Metadata.Name).Body(options).
		SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// letGo takes our finalizer from an object: nobody else could delete it when there
// is no agent any more.
func (w *clearing) letGo(ctx context.Context, k clearedKind, o thing) error {
	at := slices.Index(o.Metadata.Finalizers, api.FinalizerPeering)
	if !w.really || at < 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion,
		"finalizers": append([]string{}, slices.Delete(slices.Clone(o.Metadata.Finalizers), at, at+1)...),
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = kube.Body(w.client.rest.Patch(types.MergePatchType).AbsPath(k.path, o.Metadata.Name).
		Param("fieldManager", ManagerForeignCluster).Body(patch).MaxRetries(0).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
