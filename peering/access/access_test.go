package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

const testID = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")

func TestReadAccess(t *testing.T) {
	role := func(request, advertisement bool, change ...func(*clusterRole)) *clusterRole {
		r := wantedRole(testID, request, advertisement).DeepCopyObject().(*clusterRole)
		for _, c := range change {
			c(r)
		}
		return r
	}
	binding := func(change ...func(*clusterRoleBinding)) *clusterRoleBinding {
		b := wantedBinding(testID, api.PeerUsers{Namespace: "liqo"}).DeepCopyObject().(*clusterRoleBinding)
		for _, c := range change {
			c(b)
		}
		return b
	}
	for _, tc := range []struct {
		name    string
		role    *clusterRole
		binding *clusterRoleBinding
		want    *plan.Access
	}{
		{"nothing", nil, nil, nil},
		{"request", role(true, false), binding(), &plan.Access{Request: true, Intact: true}},
		{"advertisement", role(false, true), binding(), &plan.Access{Advertisement: true, Intact: true}},
		{"both", role(true, true), binding(), &plan.Access{Request: true, Advertisement: true, Intact: true}},
		{"no binding", role(true, true), nil, &plan.Access{Request: true, Advertisement: true}},
		{"no role", nil, binding(), &plan.Access{}},
		{"no rule", role(false, false), binding(), &plan.Access{}},
		{"another rule", role(true, false, func(r *clusterRole) {
			r.Rules = append(r.Rules, policyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
		}), binding(), &plan.Access{Request: true}},
		{"more verbs", role(true, false, func(r *clusterRole) { r.Rules[0].Verbs = append(r.Rules[0].Verbs, "list") }), binding(), &plan.Access{Request: true}},
		{"every name", role(true, false, func(r *clusterRole) { r.Rules[0].ResourceNames = nil }), binding(), &plan.Access{Request: true}},
		{"a URL", role(true, false, func(r *clusterRole) { r.Rules[0].NonResourceURLs = []string{"/metrics"} }), binding(), &plan.Access{Request: true}},
		{"aggregated", role(true, false, func(r *clusterRole) { r.AggregationRule = json.RawMessage(`{}`) }), binding(), &plan.Access{Request: true}},
		{"not labelled", role(true, false, func(r *clusterRole) { r.Labels = nil }), binding(), &plan.Access{Request: true}},
		{"another user as well", role(true, false), binding(func(b *clusterRoleBinding) {
			b.Subjects = append(b.Subjects, subject{APIGroup: rbacGroup, Kind: "User", Name: "eve"})
		}), &plan.Access{Request: true}},
		{"another role", role(true, false), binding(func(b *clusterRoleBinding) { b.RoleRef.Name = "cluster-admin" }), &plan.Access{Request: true}},
	} {
		got := readAccess(testID, api.PeerUsers{Namespace: "liqo"}, tc.role, tc.binding)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestReadSecret(t *testing.T) {
	ca, fp := certificate(t)
	_, other := certificate(t)
	stored := plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo"}
	for _, tc := range []struct {
		name   string
		change func(*secret)
		want   plan.Secret
	}{
		{"as written", func(*secret) {}, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: true}},
		{"more data", func(s *secret) { s.Data["note"] = []byte("mine") }, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: true}},
		{"without CA", func(s *secret) { delete(s.Data, secretCA) }, plan.Secret{Fingerprint: fp, CA: nil, Namespace: "liqo", Intact: true}},
		{"other type", func(s *secret) { s.Type = "x" }, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: false}},
		{"no labels", func(s *secret) { s.Labels = nil }, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: false}},
		{"other cluster", func(s *secret) { s.Data[secretClusterID] = []byte("x") }, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: false}},
		{"no fingerprint", func(s *secret) { delete(s.Data, secretFingerprint) }, plan.Secret{Namespace: "liqo"}},
		{"other key", func(s *secret) { s.Data[secretFingerprint] = []byte(other.String()) }, plan.Secret{Fingerprint: other, Namespace: "liqo"}},
		{"no PEM", func(s *secret) { s.Data[secretCA] = []byte("x") }, plan.Secret{Fingerprint: fp, Namespace: "liqo"}},
		{"more PEM", func(s *secret) { s.Data[secretCA] = append(s.Data[secretCA], s.Data[secretCA]...) }, plan.Secret{Fingerprint: fp, CA: ca, Namespace: "liqo", Intact: false}},
	} {
		s := wantedSecret(testID, "liqo", stored)
		tc.change(s)
		got := readSecret(testID, s)
		if got.Fingerprint != tc.want.Fingerprint || string(got.CA) != string(tc.want.CA) || got.Namespace != tc.want.Namespace || got.Intact != tc.want.Intact {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// certificate returns a certificate in DER and the fingerprint of its key.
func certificate(t *testing.T) ([]byte, peer.Fingerprint) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return der, peer.FingerprintOf(parsed.RawSubjectPublicKeyInfo)
}

// FuzzReadSecret: whatever a Secret says, what counts as intact is what would be
// written.
func FuzzReadSecret(f *testing.F) {
	fp := peer.FingerprintOf([]byte("key"))
	good := wantedSecret(testID, "liqo", plan.Secret{Fingerprint: fp, Namespace: "liqo"})
	f.Add(good.Data[secretCA], good.Data[secretFingerprint], good.Data[secretClusterID], good.Data[secretNamespace])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte(fp.String()), []byte(testID), []byte(""))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("x"), []byte(nil), []byte("\xff"))
	f.Fuzz(func(t *testing.T, ca, fingerprint, id, namespace []byte) {
		s := good.DeepCopyObject().(*secret)
		s.Data = map[string][]byte{secretCA: ca, secretFingerprint: fingerprint, secretClusterID: id, secretNamespace: namespace}
		if len(ca) == 0 {
			delete(s.Data, secretCA)
		}
		if got := readSecret(testID, s); got.Intact && !s.shows(wantedSecret(testID, "liqo", *got)) {
			t.Errorf("%+v is intact, and is not what is written", got)
		}
	})
}

// TestPut writes an object that others changed in every way.
func TestPut(t *testing.T) {
	identity := plan.Secret{Fingerprint: peer.FingerprintOf([]byte("k"))}
	wanted := wantedSecret(testID, "liqo", identity)
	show := func(change func(*secret)) string {
		s := wanted.DeepCopyObject().(*secret)
		s.UID, s.ResourceVersion = "made", "9"
		change(s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, tc := range []struct {
		name    string
		patched func() (int, string)
		there   string // what GET says; "" for nothing
		want    func(error) bool
		methods []string
	}{
		{"as wanted", func() (int, string) { return 200, show(func(*secret) {}) }, "", func(err error) bool { return err == nil }, []string{"PATCH"}},
		{"not as wanted", func() (int, string) { return 200, show(func(s *secret) { s.Type = "x" }) }, "",
			func(err error) bool { return errors.Is(err, ErrReplaced) }, []string{"PATCH", "DELETE"}},
		{"immutable", func() (int, string) { return kubetest.Failure(422, metav1.StatusReasonInvalid) }, show(func(*secret) {}),
			func(err error) bool { return errors.Is(err, ErrReplaced) }, []string{"PATCH", "GET", "DELETE"}},
		{"our mistake", func() (int, string) { return kubetest.Failure(422, metav1.StatusReasonInvalid) }, "",
			apierrors.IsInvalid, []string{"PATCH", "GET"}},
		{"forbidden", func() (int, string) { return kubetest.Failure(403, metav1.StatusReasonForbidden) }, "", apierrors.IsForbidden, []string{"PATCH"}},
	} {
		fake := kubetest.New(func(r *http.Request, _ string) (int, string) {
			switch {
			case r.Method == http.MethodPatch:
				return tc.patched()
			case r.Method == http.MethodGet && tc.there != "":
				return 200, tc.there
			case r.Method == http.MethodDelete:
				return 200, `{}`
			}
			return kubetest.Failure(404, metav1.StatusReasonNotFound)
		})
		o := New(fake.Client(t), "liqo", func(peer.ClusterID) {}, nil)
		err := o.PutSecret(t.Context(), testID, identity)
		var methods []string
		for _, sent := range fake.Take() {
			method, _, _ := strings.Cut(sent, " ")
			methods = append(methods, method)
		}
		if !tc.want(err) || !slices.Equal(methods, tc.methods) {
			t.Errorf("%s: error %v after %v", tc.name, err, methods)
		}
		if kept := o.secrets.Len() == 1; kept != (err == nil) {
			t.Errorf("%s: in the store: %v", tc.name, kept)
		}
	}
}
