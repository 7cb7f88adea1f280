//go:build linux

package liqotest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
)

const (
	authentication = "authentication.liqo.io/v1beta1"
	offloading     = "offloading.liqo.io/v1beta1"
	core           = "core.liqo.io/v1beta1"

	// Who the other cluster is, on whatever Liqo has of it.
	remoteLabel = "liqo.io/remote-cluster-id"
)

// side is one of two clusters, with the client of its administrator.
type side struct {
	*bed.Liqo
	t testing.TB
}

// object is an object, or a part of one, as JSON has it.
type object = map[string]any

// authParams are how a consumer reaches its provider.
type authParams struct {
	CA        []byte `json:"ca,omitempty"`
	SignedCRT []byte `json:"signedCRT,omitempty"`
	APIServer string `json:"apiServer,omitempty"`
}

// tenant is the document that a consumer gives to its provider.
type tenant struct {
	ClusterID string `json:"clusterID"`
	PublicKey []byte `json:"publicKey"`
	CSR       []byte `json:"csr"`
	Signature []byte `json:"signature"`
}

// identity is the document that a provider gives to its consumer.
type identity struct {
	ClusterID  string     `json:"clusterID"`
	Type       string     `json:"type"`
	Namespace  string     `json:"namespace"`
	AuthParams authParams `json:"authParams"`
}

// ByHand has the consumer use the provider as liqoctl does: each step by the client of one side's administrator.
func ByHand(t testing.TB, consumer, provider *bed.Liqo) {
	t.Helper()
	peer(side{consumer, t}, side{provider, t}, nil)
}

// tenantNamespace is where a cluster has what is about the other one.
func tenantNamespace(other side) string { return "liqo-tenant-" + other.ID }

// path is where the API server has objects of a kind, or one of them.
func path(group, namespace, plural string, name ...string) string {
	p := "/apis/" + group
	if !strings.Contains(group, "/") {
		p = "/api/" + group
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + strings.Join(append([]string{plural}, name...), "/")
}

// read gets an object.
func (s side) read(path string, into any) error {
	text, err := s.Kube.Request(s.t.Context(), http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// until waits until an object is as wanted, which says what is missing.
func until[T any](s side, path string, wanted func(*T) error) T {
	s.t.Helper()
	var out T
	bedtest.Within(s.t, s.ID+": "+path, func() error {
		var o T // of this look, without fields of the last one
		if err := s.read(path, &o); err != nil {
			return err
		}
		out = o
		return wanted(&out)
	})
	return out
}

// gone waits until there is nothing at a path.
func (s side) gone(path string) {
	s.t.Helper()
	bedtest.Within(s.t, s.ID+": "+path+" is gone", func() error {
		_, err := s.Kube.Request(s.t.Context(), http.MethodGet, path, "", nil)
		switch {
		case err == nil:
			return errors.New("it is still there")
		case strings.Contains(err.Error(), `"reason":"NotFound"`):
			return nil
		}
		return err
	})
}

func (s side) delete(path string) {
	s.t.Helper()
	if _, err := s.Kube.Request(s.t.Context(), http.MethodDelete, path, "", nil); err != nil {
		s.t.Fatalf("%s: %v", s.ID, err)
	}
}

// patch changes an object, by a merge patch. It repeats what a webhook did not answer.
func (s side) patch(path string, change object) {
	s.t.Helper()
	text, err := json.Marshal(change)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Kube.Request(s.t.Context(), http.MethodPatch, path, "application/merge-patch+json", text); err != nil {
		s.t.Fatalf("%s: %v", s.ID, err)
	}
}

// apply makes an object. It repeats that: Liqo's webhook knows of a namespace only a moment after that is there.
func (s side) apply(group, kind, namespace, name string, metadata, rest object) {
	s.t.Helper()
	meta := object{"name": name, "namespace": namespace}
	for key, value := range metadata {
		meta[key] = value
	}
	o := object{"apiVersion": group, "kind": kind, "metadata": meta}
	for key, value := range rest {
		o[key] = value
	}
	text, err := json.Marshal(o)
	if err != nil {
		s.t.Fatal(err)
	}
	bedtest.Within(s.t, s.ID+": apply "+kind+" "+name, func() error { return s.Kube.Apply(s.t.Context(), string(text)) })
}

// welcome makes the namespace for the other cluster.
func (s side) welcome(other side) {
	s.t.Helper()
	s.apply("v1", "Namespace", "", tenantNamespace(other), object{"labels": object{remoteLabel: other.ID, "liqo.io/tenant-namespace": "true"}}, nil)
}

// nonce is what the provider has a consumer sign.
func (s side) nonce(consumer side) []byte {
	s.t.Helper()
	namespace := tenantNamespace(consumer)
	s.apply("v1", "Secret", namespace, "liqo-nonce", object{"labels": object{remoteLabel: consumer.ID, "liqo.io/nonce": "true"}}, nil)
	return until(s, path("v1", namespace, "secrets", "liqo-nonce"), func(o *secret) error { return o.has("nonce") }).Data["nonce"]
}

type secret struct {
	Metadata struct{ UID string }
	Data     map[string][]byte
}

func (s *secret) has(key string) error {
	if len(s.Data[key]) == 0 {
		return fmt.Errorf("it has no %s yet", key)
	}
	return nil
}

// tenant answers a nonce of the provider's.
func (s side) tenant(provider side, nonce []byte) tenant {
	s.t.Helper()
	namespace := tenantNamespace(provider)
	s.apply("v1", "Secret", namespace, "liqo-signed-nonce", object{"labels": object{remoteLabel: provider.ID, "liqo.io/signed-nonce": "true"}},
		object{"data": object{"nonce": nonce}})
	signed := until(s, path("v1", namespace, "secrets", "liqo-signed-nonce"), func(o *secret) error { return o.has("signedNonce") })
	keys := until(s, path("v1", bed.LiqoNamespace, "secrets", "authentication-keys"), func(o *secret) error { return o.has("privateKey") })
	csr, err := request(keys.Data["privateKey"], s.ID)
	if err != nil {
		s.t.Fatalf("%s: %v", s.ID, err)
	}
	return tenant{ClusterID: s.ID, PublicKey: keys.Data["publicKey"], CSR: csr, Signature: signed.Data["signedNonce"]}
}

// request asks for the certificate of a consumer.
func request(privateKey []byte, id string) ([]byte, error) {
	block, _ := pem.Decode(privateKey)
	if block == nil {
		return nil, errors.New("the private key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: id, Organization: []string{"liqo.io"}}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key.(crypto.Signer))
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// admit takes a consumer's document, and returns the provider's.
func (s side) admit(consumer side, doc tenant) identity {
	s.t.Helper()
	namespace := tenantNamespace(consumer)
	s.apply(authentication, "Tenant", namespace, consumer.ID, object{"labels": object{remoteLabel: consumer.ID}}, object{"spec": doc})
	status := until(s, path(authentication, namespace, "tenants", consumer.ID), func(o *admitted) error {
		if len(o.Status.AuthParams.SignedCRT) == 0 || o.Status.TenantNamespace == "" {
			return errors.New("it has no certificate yet")
		}
		return nil
	}).Status
	return identity{ClusterID: s.ID, Type: "ControlPlane", Namespace: status.TenantNamespace, AuthParams: status.AuthParams}
}

type admitted struct {
	Status struct {
		TenantNamespace string
		AuthParams      authParams
	}
}

// identityName is what a consumer calls its identity at a provider.
func identityName(provider side) string { return "controlplane-" + provider.ID }

// connect takes a provider's document. It returns when Liqo has a kubeconfig of it.
func (s side) connect(provider side, doc identity) {
	s.t.Helper()
	namespace, name := tenantNamespace(provider), identityName(provider)
	s.apply(authentication, "Identity", namespace, name, object{"labels": object{remoteLabel: provider.ID}}, object{"spec": doc})
	until(s, path(authentication, namespace, "identities", name), func(o *struct {
		Status struct{ KubeconfigSecretRef struct{ Name string } }
	}) error {
		if o.Status.KubeconfigSecretRef.Name != "kubeconfig-"+name {
			return fmt.Errorf("its Secret is %q", o.Status.KubeconfigSecretRef.Name)
		}
		return nil
	})
}

type slice struct {
	Spec struct {
		ConsumerClusterID string
		Resources         map[string]string
	}
	Status struct {
		Conditions []condition
		Resources  map[string]string
		AuthParams authParams
	}
}

type condition struct{ Type, Status string }

// accepted says what a slice lacks of being accepted.
func (s *slice) accepted() error {
	for _, kind := range []string{"Authentication", "Resources"} {
		if !slices.Contains(s.Status.Conditions, condition{kind, "Accepted"}) {
			return fmt.Errorf("%s is not accepted: %v", kind, s.Status.Conditions)
		}
	}
	return nil
}

// ask asks a provider for resources. It returns when it has them.
func (s side) ask(provider side, name string, resources map[string]string) {
	s.t.Helper()
	namespace := tenantNamespace(provider)
	s.apply(authentication, "ResourceSlice", namespace, name, object{
		"annotations": object{"liqo.io/create-virtual-node": "true"},
		"labels":      object{remoteLabel: provider.ID, "liqo.io/remoteID": provider.ID, "liqo.io/replication": "true"},
	}, object{"spec": object{"class": "default", "providerClusterID": provider.ID, "resources": resources}})
	until(s, path(authentication, namespace, "resourceslices", name), (*slice).accepted)
}

type virtualNode struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		ClusterID           string
		KubeconfigSecretRef struct{ Name string }
		ResourceQuota       struct{ Hard map[string]string }
		Template            struct {
			Metadata struct{ Name, Namespace string }
		}
	}
	Status struct{ Conditions []condition }
}

// foreign is how Liqo sees the other cluster.
type foreign struct {
	Status struct {
		Role            string
		APIServerURL    string
		TenantNamespace struct{ Local, Remote string }
		Conditions      []condition
		Modules         map[string]struct {
			Enabled    bool
			Conditions []condition
		}
	}
}

// sees waits until Liqo sees the other cluster as wanted.
func (s side) sees(other side, wanted func(*foreign) error) foreign {
	s.t.Helper()
	return until(s, path(core, "", "foreignclusters", other.ID), wanted)
}

// role wants the other cluster to be the consumer or the provider of this one, or neither.
func role(want string) func(*foreign) error {
	return func(o *foreign) error {
		if o.Status.Role != want {
			return fmt.Errorf("its role is %q, want %q", o.Status.Role, want)
		}
		return nil
	}
}

// reached wants a condition about the other cluster's API server.
func reached(want string) func(*foreign) error {
	return func(o *foreign) error {
		if !slices.Contains(o.Status.Conditions, condition{"APIServerStatus", want}) {
			return fmt.Errorf("its conditions are %v, want APIServerStatus %s", o.Status.Conditions, want)
		}
		return nil
	}
}

// peer has the consumer use the provider by the exchange of documents, each step by the client of one side. It returns how long
// that took.
func peer(consumer, provider side, resources map[string]string) time.Duration {
	consumer.t.Helper()
	begin := time.Now()
	last := begin
	step := func(what string) {
		now := time.Now()
		consumer.t.Logf("%6.2f s %s", now.Sub(last).Seconds(), what)
		last = now
	}
	consumer.welcome(provider)
	provider.welcome(consumer)
	step("0 namespaces")
	nonce := provider.nonce(consumer)
	step("1 nonce, to the consumer")
	doc := consumer.tenant(provider, nonce)
	step("2 tenant, to the provider")
	answer := provider.admit(consumer, doc)
	step("3 identity, to the consumer")
	consumer.connect(provider, answer)
	step("  kubeconfig")
	consumer.ask(provider, provider.ID, resources)
	step("4 resource slice accepted")
	until(consumer, path(offloading, tenantNamespace(provider), "virtualnodes", provider.ID), func(*virtualNode) error { return nil })
	step("  virtual node")
	return last.Sub(begin)
}

// traces lists what a cluster has that names the other one.
func (s side) traces(ctx context.Context, other side) ([]string, error) {
	var groups struct {
		Groups []struct{ PreferredVersion struct{ GroupVersion string } }
	}
	if err := s.read("/apis", &groups); err != nil {
		return nil, err
	}
	versions := []string{"v1"}
	for _, g := range groups.Groups {
		versions = append(versions, g.PreferredVersion.GroupVersion)
	}
	var found []string
	for _, version := range versions {
		var kinds struct {
			Resources []struct {
				Name  string
				Verbs []string
			}
		}
		if err := s.read(strings.TrimSuffix(path(version, "", ""), "/"), &kinds); err != nil {
			return nil, err
		}
		for _, kind := range kinds.Resources {
			if kind.Name == "events" || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			var list struct {
				Items []json.RawMessage
			}
			if err := s.read(path(version, "", kind.Name), &list); err != nil {
				return nil, err
			}
			for _, item := range list.Items {
				var o struct {
					Metadata struct{ Namespace, Name string }
				}
				if err := json.Unmarshal(item, &o); err != nil {
					return nil, err
				}
				if name := kind.Name + " " + o.Metadata.Name; name == "configmaps kube-root-ca.crt" || name == "serviceaccounts default" {
					continue // every namespace has them
				}
				if strings.Contains(string(item), other.ID) {
					found = append(found, kind.Name+" "+strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"))
				}
			}
		}
	}
	return found, ctx.Err()
}
