package integration

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
)

// item is an object of any kind.
type item struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Data   map[string][]byte `json:"data,omitempty"`
	Spec   map[string]any    `json:"spec,omitempty"`
	Status map[string]any    `json:"status,omitempty"`
}

func (i *item) DeepCopyObject() runtime.Object {
	out := *i
	i.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// kinds are those that the stand-in follows, by their plural names.
var kinds = map[string]string{
	"secrets":         "/api/v1",
	"tenants":         "/apis/authentication.liqo.io/v1beta1",
	"identities":      "/apis/authentication.liqo.io/v1beta1",
	"resourceslices":  "/apis/authentication.liqo.io/v1beta1",
	"renews":          "/apis/authentication.liqo.io/v1beta1",
	"virtualnodes":    "/apis/offloading.liqo.io/v1beta1",
	"foreignclusters": "/apis/core.liqo.io/v1beta1",
}

// crds are definitions without a schema: what is in the objects is Liqo's business.
func crds() string {
	var out strings.Builder
	for _, c := range []struct{ group, kind, plural, scope string }{
		{"authentication.liqo.io", "Tenant", "tenants", "Namespaced"}, {"authentication.liqo.io", "Identity", "identities", "Namespaced"},
		{"authentication.liqo.io", "ResourceSlice", "resourceslices", "Namespaced"}, {"authentication.liqo.io", "Renew", "renews", "Namespaced"},
		{"offloading.liqo.io", "VirtualNode", "virtualnodes", "Namespaced"}, {"core.liqo.io", "ForeignCluster", "foreignclusters", "Cluster"},
	} {
		fmt.Fprintf(&out, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: %[4]s
  names: {kind: %[2]s, plural: %[3]s}
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---`, c.group, c.kind, c.plural, c.scope)
	}
	return out.String()
}

// chart is what Liqo's chart installs, as far as the agent looks at it.
func chart(id string) string {
	out := fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap, namespace: liqo, labels: {app.kubernetes.io/name: clusterid-configmap}}
data: {CLUSTER_ID: %s}
---`, id)
	for _, name := range []string{"controller-manager", "crd-replicator", "webhook"} {
		out += fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-%[1]s, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/name: %[1]s, app.kubernetes.io/version: v1.2.0}}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}
---`, name)
	}
	return out
}

// looksAgain is the pause after a request that failed.
const looksAgain = 500 * time.Millisecond

// standIn does in one cluster what Liqo's controllers do.
type standIn struct {
	t      *testing.T
	id     string
	kube   *bed.Kube
	client *kube.Client
	key    ed25519.PrivateKey
	ca     []byte // of the API server, in PEM
	server string // of the API server, as Liqo says it
	caches map[string]*kube.Cache[*item]
	wake   chan struct{}

	mu     sync.Mutex
	halted map[string]bool // steps that are not done
}

// install installs Liqo in a cluster.
func install(t *testing.T, k *bed.Kube, id string) *standIn {
	t.Helper()
	must(t, k.Apply(t.Context(), crds()))
	must(t, k.Apply(t.Context(), chart(id)))
	s := &standIn{t: t, id: id, kube: k, server: "https://10.0.0.1:6443", caches: map[string]*kube.Cache[*item]{}, wake: make(chan struct{}, 1), halted: map[string]bool{}}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	s.key = private
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	s.ca = certificate(t, private, &x509.Certificate{Subject: pkix.Name{CommonName: "server-ca"}, IsCA: true}, public)
	must(t, k.Apply(t.Context(), fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: authentication-keys, namespace: liqo}\ndata: {privateKey: %s, publicKey: %s}",
		base64.StdEncoding.EncodeToString(pemOf("PRIVATE KEY", privateDER)), base64.StdEncoding.EncodeToString(pemOf("PUBLIC KEY", publicDER)))))
	for _, name := range []string{"controller-manager", "crd-replicator", "webhook"} {
		s.ready(name, 1)
	}
	s.client, err = kube.New(k.RESTConfig())
	must(t, err)
	t.Cleanup(s.client.Close)
	for plural, group := range kinds {
		cache := kube.NewCache(kube.Kind[*item]{Fresh: func() *item { return &item{} }, Changed: func(_, _ *item) { work.Wake(s.wake) }})
		s.caches[plural] = cache
		bedtest.Run(t, nil, nil, func(ctx context.Context) error {
			cache.Follow(ctx, s.client, kube.Query{Path: group + "/" + plural})
			return nil
		})
		bedtest.Within(t, plural, func() error {
			if !cache.HasSynced() {
				return fmt.Errorf("not listed: %v", cache.Failure())
			}
			return nil
		})
	}
	return s
}

// ready says how many replicas of a Deployment are ready.
func (s *standIn) ready(name string, replicas int) {
	s.t.Helper()
	_, err := s.kube.Request(s.t.Context(), "PATCH", "/apis/apps/v1/namespaces/liqo/deployments/liqo-"+name+"/status", "application/merge-patch+json",
		fmt.Appendf(nil, `{"status":{"replicas":%d,"readyReplicas":%[1]d}}`, replicas))
	must(s.t, err)
}

// serve does what is to be done until the test ends. Both clusters are served by one goroutine, so
// that a step is never half done when another begins.
func serve(t *testing.T, consumer, provider *standIn) {
	t.Helper()
	bedtest.Run(t, nil, nil, func(ctx context.Context) error {
		for {
			for consumer.step(ctx, provider) || provider.step(ctx, consumer) {
			}
			select {
			case <-ctx.Done():
				return nil
			case <-consumer.wake:
			case <-provider.wake:
			}
		}
	})
}

// halt has a step not done, or done again.
func (s *standIn) halt(step string, halted bool) {
	s.mu.Lock()
	s.halted[step] = halted
	s.mu.Unlock()
	work.Wake(s.wake)
}

func (s *standIn) does(step string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.halted[step]
}

// step does one thing, and reports whether there was one.
func (s *standIn) step(ctx context.Context, other *standIn) bool {
	for _, o := range s.caches["secrets"].All() {
		switch {
		case o.Labels["liqo.io/nonce"] == "true" && o.Data["nonce"] == nil && s.does("nonce"):
			random := make([]byte, 64)
			_, _ = rand.Read(random)
			return s.patch(ctx, "secrets", o, "", object{"data": object{"nonce": []byte(base64.StdEncoding.EncodeToString(random))}})
		case o.Labels["liqo.io/signed-nonce"] == "true" && s.does("sign") && !bytes.Equal(o.Data["signedNonce"], ed25519.Sign(s.key, o.Data["nonce"])):
			return s.patch(ctx, "secrets", o, "", object{"data": object{"signedNonce": ed25519.Sign(s.key, o.Data["nonce"])}})
		case o.DeletionTimestamp != nil && len(o.Finalizers) > 0 && s.does("replicator") && s.local(o.Labels["liqo.io/remote-cluster-id"]) == 0:
			if renew := other.caches["renews"].Get("liqo-tenant-"+s.id, "controlplane-"+other.id); renew != nil {
				if other.caches["tenants"].Get("liqo-tenant-"+s.id, s.id) == nil {
					continue // no rights any more
				}
				return other.delete(ctx, "renews", renew)
			}
			return s.patch(ctx, "secrets", o, "", object{"metadata": object{"finalizers": nil}})
		}
	}
	for _, o := range s.caches["tenants"].All() {
		if o.DeletionTimestamp == nil && o.Status["authParams"] == nil && s.does("tenant") {
			return s.admit(ctx, o)
		}
	}
	for _, o := range s.caches["identities"].All() {
		id, _ := o.Spec["clusterID"].(string)
		params, _ := o.Spec["authParams"].(map[string]any)
		server, _ := params["apiServer"].(string)
		fc := s.caches["foreignclusters"].Get("", id)
		switch {
		case o.Status["kubeconfigSecretRef"] == nil && s.does("identity"):
			name := "kubeconfig-" + o.Name
			if s.caches["secrets"].Get(o.Namespace, name) == nil {
				return s.create(ctx, "secrets", o.Namespace, object{
					"apiVersion": "v1", "kind": "Secret",
					"metadata": object{"name": name, "labels": object{"liqo.io/remote-cluster-id": id}, "finalizers": []string{"crdreplicator.liqo.io/operator"}},
				})
			}
			return s.patch(ctx, "identities", o, "/status", object{"status": object{"kubeconfigSecretRef": object{"name": name}}})
		case fc == nil:
			return s.create(ctx, "foreignclusters", "", object{
				"apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": object{"name": id, "labels": object{"liqo.io/remote-cluster-id": id}},
			})
		case (fc.Status["apiServerUrl"] == nil) != (server == "") && s.does("checker"):
			var url any
			if server != "" {
				url = server
			}
			return s.patch(ctx, "foreignclusters", fc, "/status", object{"status": object{"apiServerUrl": url}})
		}
	}
	for _, o := range s.caches["secrets"].All() { // those of Identities that are gone
		if name, ok := strings.CutPrefix(o.Name, "kubeconfig-"); ok && o.DeletionTimestamp == nil && s.caches["identities"].Get(o.Namespace, name) == nil {
			return s.delete(ctx, "secrets", o)
		}
	}
	for _, o := range s.caches["resourceslices"].All() {
		if o.Labels["liqo.io/replicated"] == "" && s.does("slice") && s.replicate(ctx, o, other) {
			return true
		}
	}
	for _, o := range s.caches["virtualnodes"].All() {
		if o.DeletionTimestamp != nil && s.does("drain") {
			return s.patch(ctx, "virtualnodes", o, "", object{"metadata": object{"finalizers": nil}})
		}
	}
	return false
}

// local counts what is to be replicated to a cluster.
func (s *standIn) local(id string) (n int) {
	for _, o := range s.caches["resourceslices"].All() {
		if o.Labels["liqo.io/remoteID"] == id {
			n++
		}
	}
	return n
}

// admit gives a Tenant its certificate, and is as careless as Liqo.
func (s *standIn) admit(ctx context.Context, o *item) bool {
	text, _ := o.Spec["csr"].(string)
	decoded, _ := base64.StdEncoding.DecodeString(text)
	block, _ := pem.Decode(decoded)
	if block == nil {
		return false
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return false
	}
	signed := certificate(s.t, s.key, &x509.Certificate{Subject: csr.Subject}, csr.PublicKey)
	return s.patch(ctx, "tenants", o, "/status", object{"status": object{
		"tenantNamespace": o.Namespace, "authParams": object{"ca": s.ca, "signedCRT": signed, "apiServer": s.server},
	}})
}

// replicate takes a ResourceSlice to its provider, and brings back what that says.
func (s *standIn) replicate(ctx context.Context, o *item, provider *standIn) bool {
	there := provider.caches["resourceslices"].Get("liqo-tenant-"+s.id, o.Name)
	switch {
	case o.DeletionTimestamp != nil && there != nil:
		return provider.delete(ctx, "resourceslices", there)
	case o.DeletionTimestamp != nil && len(o.Finalizers) > 0:
		return s.patch(ctx, "resourceslices", o, "", object{"metadata": object{"finalizers": nil}})
	case o.DeletionTimestamp != nil:
		return false
	case !slices.Contains(o.Finalizers, "crdreplicator.liqo.io/resource"):
		return s.patch(ctx, "resourceslices", o, "", object{"metadata": object{"finalizers": []string{"crdreplicator.liqo.io/resource"}}})
	case there == nil:
		replicated := object{"liqo.io/replicated": "true", "liqo.io/originID": s.id, "liqo.io/remote-cluster-id": s.id}
		if provider.caches["renews"].Get("liqo-tenant-"+s.id, "controlplane-"+provider.id) == nil {
			return provider.create(ctx, "renews", "liqo-tenant-"+s.id, object{
				"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Renew", "metadata": object{"name": "controlplane-" + provider.id, "labels": replicated},
			})
		}
		return provider.create(ctx, "resourceslices", "liqo-tenant-"+s.id, object{
			"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": object{"name": o.Name, "labels": replicated}, "spec": o.Spec,
		})
	case o.Status["conditions"] == nil:
		if s.caches["virtualnodes"].Get(o.Namespace, o.Name) == nil {
			return s.create(ctx, "virtualnodes", o.Namespace, object{
				"apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
				"metadata": object{"name": o.Name, "labels": object{"liqo.io/remote-cluster-id": provider.id}, "finalizers": []string{"virtualnode.liqo.io/finalizer"}},
			})
		}
		return s.patch(ctx, "resourceslices", o, "/status", object{"status": object{
			"conditions": []object{{"type": "Authentication", "status": "Accepted"}, {"type": "Resources", "status": "Accepted"}}, "resources": object{"cpu": 2},
		}})
	}
	return false
}

func path(plural, namespace, name string) string {
	if namespace != "" {
		namespace = "/namespaces/" + namespace
	}
	return kinds[plural] + namespace + "/" + plural + "/" + name
}

// failed has everything looked at again after a moment, as Liqo's controllers do: the object is gone, or the API server
// was too busy, and then nothing else would happen any more.
func (s *standIn) failed() bool {
	time.AfterFunc(looksAgain, func() { work.Wake(s.wake) })
	return false
}

func (s *standIn) patch(ctx context.Context, plural string, o *item, subresource string, change object) bool {
	text, err := json.Marshal(change)
	if err != nil {
		s.t.Error(err)
		return false
	}
	written := &item{}
	if err := s.client.Patch(ctx, path(plural, o.Namespace, o.Name)+subresource, "liqo", types.MergePatchType, text, written); err != nil {
		return s.failed()
	}
	s.caches[plural].Wrote(written)
	return true
}

func (s *standIn) create(ctx context.Context, plural, namespace string, o object) bool {
	written := &item{}
	if err := s.client.Create(ctx, strings.TrimSuffix(path(plural, namespace, ""), "/"), o, written); err != nil {
		return s.failed()
	}
	s.caches[plural].Wrote(written)
	return true
}

func (s *standIn) delete(ctx context.Context, plural string, o *item) bool {
	if err := s.client.Delete(ctx, path(plural, o.Namespace, o.Name), metav1.DeleteOptions{}); err != nil {
		return s.failed()
	}
	s.caches[plural].Deleted(o.Namespace, o.Name, o.UID)
	return len(o.Finalizers) == 0
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func certificate(t *testing.T, issuer ed25519.PrivateKey, template *x509.Certificate, public crypto.PublicKey) []byte {
	t.Helper()
	template.SerialNumber, template.BasicConstraintsValid = big.NewInt(1), true
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}}, public, issuer)
	must(t, err)
	return pemOf("CERTIFICATE", der)
}
