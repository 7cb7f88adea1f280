package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

const (
	prPath  = "/apis/discovery.liqo.io/v1alpha1/peeringrequests"
	advPath = "/apis/sharing.liqo.io/v1alpha1/advertisements"
	sdPath  = "/apis/discovery.liqo.io/v1alpha1/searchdomains"
	ccPath  = "/apis/config.liqo.io/v1alpha1/clusterconfigs"
)

// sayScheme is what the rules say about a URL with another scheme.
const sayScheme = "authUrl must begin with https://, as in https://192.0.2.1:6447"

// installCRDs applies the manifests without an agent, and waits until they are
// served.
func installCRDs(t *testing.T, k *bed.Kube) {
	t.Helper()
	for _, manifest := range api.CRDs() {
		if err := k.Apply(t.Context(), string(manifest.YAML)); err != nil {
			t.Fatal(err)
		}
		within(t, manifest.Name, func() error {
			text, err := k.Request(t.Context(), "GET", crdsPath+manifest.Name, "", nil)
			if err != nil {
				return err
			}
			var crd struct {
				Status struct {
					Conditions []api.Condition `json:"conditions"`
				} `json:"status"`
			}
			if err := json.Unmarshal(text, &crd); err != nil {
				return err
			}
			established := false
			for _, c := range crd.Status.Conditions {
				if c.Type == "NonStructuralSchema" && c.Status == api.ConditionTrue {
					t.Fatalf("%s: %s", manifest.Name, c.Message)
				}
				established = established || c.Type == "Established" && c.Status == api.ConditionTrue
			}
			if !established {
				return fmt.Errorf("not established: %+v", crd.Status.Conditions)
			}
			return nil
		})
	}
	for _, path := range []string{fcPath, prPath, advPath, sdPath, ccPath} {
		within(t, path, func() error {
			_, err := k.Request(t.Context(), "GET", path, "", nil)
			return err
		})
	}
}

// TestCustomResources checks what only an API server and kubectl can show: that they follow the
// rules of the manifests, which internal/bed/kube/rules tests one by one.
func TestCustomResources(t *testing.T) {
	k := startKube(t)
	installCRDs(t, k)
	const (
		fc  = "{apiVersion: discovery.liqo.io/v1alpha1, kind: ForeignCluster, metadata: {name: a}, spec: {authUrl: %q}}"
		pr  = "{apiVersion: discovery.liqo.io/v1alpha1, kind: PeeringRequest, metadata: {name: a}, spec: {clusterIdentity: {clusterID: %s}}}"
		adv = `{apiVersion: sharing.liqo.io/v1alpha1, kind: Advertisement, metadata: {name: a}, spec: {clusterId: %s, timestamp: "2026-11-01T00:00:00Z",
			timeToLive: "2026-11-01T06:00:00Z", resourceQuota: {hard: {cpu: 3900m, memory: 7.5Gi, pods: "110"}}}}`
		sd = "{apiVersion: discovery.liqo.io/v1alpha1, kind: SearchDomain, metadata: {name: a}, spec: {domain: %q}}"
		cc = "{apiVersion: config.liqo.io/v1alpha1, kind: ClusterConfig, metadata: {name: %s}, spec: {discoveryConfig: {enableDiscovery: false, enableAdvertisement: false, autojoin: true}}}"
	)
	for _, tc := range []struct{ manifest, good, bad, say string }{
		{fc, "https://192.0.2.1:6447", "http://192.0.2.1:6447", sayScheme},
		{pr, "a", "other", "a PeeringRequest is named after the cluster ID that it is from"},
		{adv, "a", "other", "an Advertisement is named after the cluster ID that it is from"},
		{sd, "example.com", "https://example.com", "domain must be the name of a DNS domain, such as example.com"},
		{cc, api.ClusterConfigName, "another-one", "the agent reads the ClusterConfig named liqo-configuration only"},
	} {
		within(t, "the refusal", func() error { // the rules are applied a moment after they are served
			if err := k.Apply(t.Context(), fmt.Sprintf(tc.manifest, tc.bad)); err == nil || !strings.Contains(err.Error(), tc.say) {
				return fmt.Errorf("error %v, want %q", err, tc.say)
			}
			return nil
		})
		if err := k.Apply(t.Context(), fmt.Sprintf(tc.manifest, tc.good)); err != nil {
			t.Errorf("%v", err)
		}
	}

	known(t, k, "fc,pr,adv,sd,cc")
	t.Run("edits", func(t *testing.T) {
		request(t, k, "PATCH", fcPath+"/a", merge, `{"spec":{"clusterIdentity":{"clusterID":"b"}}}`)
		for patch, say := range map[string]string{
			`{"spec":{"authUrl":"https://192.0.2.1:6447/ids"}}`:  "authUrl must end after the port",
			`{"spec":{"clusterIdentity":{"clusterID":"other"}}}`: "clusterIdentity.clusterID cannot change",
		} {
			if _, err := k.Kubectl(t.Context(), "patch", "fc", "a", "--type", "merge", "-p", patch); err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: error %v, want %q", patch, err, say)
			}
		}
	})
	t.Run("a misspelt switch", func(t *testing.T) {
		const unknown = `unknown field "spec.discoveryConfig.enableDiscovry"`
		out, err := shell(t, k, `kubectl patch clusterconfigs liqo-configuration --patch '{"spec":{"discoveryConfig":{"enableDiscovry": true}}}' --type merge 2>&1`)
		if err != nil || !strings.Contains(out, unknown) {
			t.Errorf("kubectl patch: %v\n%s", err, out)
		}
		manifest := "{apiVersion: config.liqo.io/v1alpha1, kind: ClusterConfig, metadata: {name: liqo-configuration}, spec: {discoveryConfig: {enableDiscovry: true}}}"
		if out, err := k.Host.RunInput(t.Context(), manifest, "kubectl", "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), unknown) {
			t.Errorf("kubectl apply: %v\n%s", err, out)
		}
		_, err = k.Request(t.Context(), "PATCH", ccPath+"/"+api.ClusterConfigName+"?fieldManager=test&fieldValidation=Strict", "application/apply-patch+yaml", []byte(manifest))
		if err == nil || !strings.Contains(err.Error(), "enableDiscovry") {
			t.Errorf("server-side apply: %v", err)
		}
	})
	t.Run("kubectl", func(t *testing.T) {
		request(t, k, "PATCH", prPath+"/a/status", merge, `{"status":{"phase":"Refused","reason":"Blocked","message":"It is."}}`)
		request(t, k, "PATCH", ccPath+"/"+api.ClusterConfigName+"/status", merge,
			`{"status":{"effective":{"enableDiscovery":false,"enableAdvertisement":true,"autojoin":false,"enableBroadcaster":true}}}`)
		for _, tc := range []struct {
			args         []string
			header, cell string
		}{
			{[]string{"get", "pr", "a"}, "NAME CLUSTER NAME PHASE REASON ADVERTISEMENT CPU MEMORY AGE", "Refused"},
			{[]string{"get", "pr", "a", "-o", "wide"}, "NAME CLUSTER NAME PHASE REASON ADVERTISEMENT CPU MEMORY AGE MESSAGE", "It is."},
			{[]string{"get", "adv", "a"}, "NAME STATUS CPU MEMORY PODS EXPIRES AGE", "3900m 7.5Gi 110 2026-11-01T06:00:00Z"},
			{[]string{"get", "adv", "a", "-o", "wide"}, "NAME STATUS CPU MEMORY PODS EXPIRES AGE ARCH NODE REASON", ""},
			{[]string{"get", "fc"}, "NAME CLUSTER NAME ROLE OUTGOING INCOMING DISCOVERY ACCESS AGE", "Unknown false false Manual"},
			{[]string{"get", "cc"}, "NAME DISCOVERY ADVERTISEMENT AUTOJOIN SHARING HEALTHY AGE", "liqo-configuration false true false true"},
		} {
			out, err := k.Kubectl(t.Context(), tc.args...)
			out = strings.Join(strings.Fields(out), " ")
			if err != nil || !strings.HasPrefix(out, tc.header) || !strings.Contains(out, tc.cell) {
				t.Errorf("kubectl %v: %v: %s", tc.args, err, out)
			}
		}
		// What all of them say is in api.TestDescriptions.
		within(t, "kubectl explain", func() error { // what it knows lags behind, too
			out, err := k.Kubectl(t.Context(), "explain", "cc.spec.discoveryConfig.enableDiscovery")
			if err == nil && !strings.Contains(out, "discovery.enable_discovery") {
				err = errors.New(out)
			}
			return err
		})
	})
	t.Run("manifests as the server has them", func(t *testing.T) {
		for _, manifest := range api.CRDs() {
			var wanted, found struct {
				Spec struct {
					Versions []json.RawMessage `json:"versions"`
				} `json:"spec"`
			}
			if err := yaml.Unmarshal(manifest.YAML, &wanted); err != nil {
				t.Fatal(err)
			}
			text, err := k.Request(t.Context(), "GET", crdsPath+manifest.Name, "", nil)
			if err == nil {
				err = json.Unmarshal(text, &found)
			}
			if err != nil {
				t.Fatal(err)
			}
			// The server fills in nothing there, which is how the agent sees that it has nothing to write.
			var w, f any
			if json.Unmarshal(wanted.Spec.Versions[0], &w) != nil || json.Unmarshal(found.Spec.Versions[0], &f) != nil || fmt.Sprint(w) != fmt.Sprint(f) {
				t.Errorf("%s:\n%v\n%v", manifest.Name, w, f)
			}
		}
	})
}

// shell runs a command as a person does who is logged in to the box, and returns
// what it printed.
func shell(t *testing.T, k *bed.Kube, command string) (string, error) {
	t.Helper()
	return k.Host.Run(t.Context(), "sh", "-c", command)
}
