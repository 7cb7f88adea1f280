package integration

import (
	"encoding/json"
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

// installCRDs applies the manifests without an agent, and waits until they are
// served.
func installCRDs(t *testing.T, k *bed.Kube) {
	t.Helper()
	for _, manifest := range api.CRDs() {
		if err := k.Apply(t.Context(), string(manifest.YAML)); err != nil {
			t.Fatal(err)
		}
		within(t, manifest.Name, func() error {
			text, err := k.Request(t.Context(), "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+manifest.Name, "", nil)
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

// entries returns n entries of a JSON object.
func entries(n int, value string) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%q:%q", fmt.Sprintf("k%d", i), value))
	}
	return "{" + strings.Join(out, ",") + "}"
}

// TestPeeringResources checks on a real API server what PeeringRequests and
// Advertisements it takes, and what kubectl makes of them.
func TestPeeringResources(t *testing.T) {
	k := startKube(t)
	installCRDs(t, k)

	const times = `"timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"`
	adv := func(more string) string { return `{"clusterId":"NAME",` + times + more + `}` }
	pr := func(more string) string { return `{"clusterIdentity":{"clusterID":"NAME"}` + more + `}` }
	long := strings.Repeat("x", 2000)
	for i, tc := range []struct {
		kind, spec string // NAME is replaced by the object's name
		want       string // in the error; "" = it is taken
	}{
		{"PeeringRequest", pr(``), ""},
		{"PeeringRequest", pr(`,"namespace":"liqo","authUrl":"https://192.0.2.1:6447"`), ""},
		{"PeeringRequest", pr(`,"authUrl":"https://[fe80::1%25eth0]:6447"`), ""},
		{"PeeringRequest", pr(`,"authUrl":""`), ""},
		{"PeeringRequest", `{"clusterIdentity":{"clusterID":"NAME","clusterName":"Grünes Haus"}}`, ""},
		{"PeeringRequest", `{"clusterIdentity":{"clusterID":"other"}}`, "named after the cluster ID"},
		{"PeeringRequest", `{"clusterIdentity":{"clusterName":"NAME"}}`, "clusterIdentity.clusterID is required"},
		{"PeeringRequest", `{"clusterIdentity":{}}`, "clusterIdentity.clusterID is required"},
		{"PeeringRequest", `{}`, "spec.clusterIdentity: Required value"},
		{"PeeringRequest", `null`, "spec"},
		{"PeeringRequest", pr(`,"authUrl":"http://192.0.2.1:6447"`), sayScheme},
		{"PeeringRequest", pr(`,"authUrl":"https://"`), sayNoHost},
		{"PeeringRequest", pr(`,"authUrl":"file:///etc/passwd"`), sayScheme},
		{"PeeringRequest", pr(`,"authUrl":"https://` + long + `"`), "may not be more than 1024"},
		{"PeeringRequest", pr(`,"namespace":"Not Good"`), "should match"},
		{"PeeringRequest", `{"clusterIdentity":{"clusterID":"NAME","clusterName":"` + long + `"}}`, "may not be more than 63"},

		{"Advertisement", adv(``), ""},
		{"Advertisement", adv(`,"resourceQuota":{"hard":{"cpu":"3900m","memory":"7.5Gi","pods":"110","ephemeral-storage":"12e9","nvidia.com/gpu":"1"}}`), ""},
		{"Advertisement", adv(`,"labels":` + entries(64, strings.Repeat("v", 63)) + `,"prices":` + entries(64, "1")), ""},
		{"Advertisement", adv(`,"images":[{"names":["docker.io/library/busybox:1"],"sizeBytes":4000000}]`), ""},
		{"Advertisement", `{"clusterId":"other",` + times + `}`, "named after the cluster ID"},
		{"Advertisement", `{` + times + `}`, "spec.clusterId: Required value"},
		{"Advertisement", `{"clusterId":"NAME"}`, "spec.timestamp: Required value"},
		{"Advertisement", `{"clusterId":"NAME","timestamp":"soon","timeToLive":"later"}`, "must be of type date-time"},
		{"Advertisement", adv(`,"labels":` + entries(65, "v")), "must have at most 64 items"},
		{"Advertisement", adv(`,"labels":{"a":"` + long + `"}`), "may not be more than 63"},
		{"Advertisement", adv(`,"prices":` + entries(65, "1")), "must have at most 64 items"},
		{"Advertisement", adv(`,"resourceQuota":{"hard":` + entries(65, "1") + `}`), "must have at most 64 items"},
		{"Advertisement", adv(`,"resourceQuota":{"hard":{"cpu":"-1"}}`), "should match"},
		{"Advertisement", adv(`,"resourceQuota":{"hard":{"cpu":"many"}}`), "should match"},
		{"Advertisement", adv(`,"resourceQuota":{"hard":{"cpu":"1e999999999"}}`), "should match"},
		{"Advertisement", adv(`,"resourceQuota":{"hard":{"cpu":4}}`), "must be of type string"},
		{"Advertisement", adv(`,"images":[` + strings.Repeat(`{},`, 512) + `{}]`), "must have at most 512 items"},
		{"Advertisement", adv(`,"images":[{"names":["` + long + `"]}]`), "may not be more than 512"},
		{"Advertisement", adv(`,"images":[{"sizeBytes":-1}]`), "greater than or equal to 0"},
	} {
		name, version, path := fmt.Sprintf("c-%d", i), api.GroupVersion.String(), prPath
		if tc.kind == api.KindAdvertisement {
			version, path = api.SharingGroupVersion.String(), advPath
		}
		spec := strings.ReplaceAll(tc.spec, "NAME", name)
		// What comes with the object as its status is not taken over.
		body := `{"apiVersion":"` + version + `","kind":"` + tc.kind + `","metadata":{"name":"` + name + `"},"spec":` + spec +
			`,"status":{"reason":"smuggled"}}`
		_, err := k.Request(t.Context(), "POST", path, jsonMIME, []byte(body))
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%.200s: %v", spec, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%.200s: error %.600v, want %q", spec, err, tc.want)
		}
	}

	read := func(t *testing.T, path string, out any) {
		t.Helper()
		text, err := k.Request(t.Context(), "GET", path, "", nil)
		if err == nil {
			err = json.Unmarshal(text, out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("PeeringRequest", func(t *testing.T) {
		var r api.PeeringRequest
		read(t, prPath+"/c-1", &r)
		if r.Status.Phase != api.RequestPending || r.Status.Reason != "" || r.ClusterID() != "c-1" || r.Spec.AuthURL != "https://192.0.2.1:6447" {
			t.Errorf("%+v", r)
		}
		request(t, k, "PATCH", prPath+"/c-1", merge, `{"status":{"phase":"Accepted"},"spec":{"namespace":"elsewhere"}}`)
		if read(t, prPath+"/c-1", &r); r.Status.Phase != api.RequestPending || r.Spec.Namespace != "elsewhere" {
			t.Errorf("the status is written with the object: %+v", r)
		}
		request(t, k, "PATCH", prPath+"/c-1/status", merge, `{"status":{"phase":"Refused","reason":"Blocked","message":"It is."},"spec":{"namespace":"nowhere"}}`)
		if read(t, prPath+"/c-1", &r); r.Status.Phase != api.RequestRefused || r.Status.Message != "It is." || r.Spec.Namespace != "elsewhere" {
			t.Errorf("after writing the status: %+v", r)
		}
		if _, err := k.Request(t.Context(), "PATCH", prPath+"/c-1/status", merge, []byte(`{"status":{"phase":"Perhaps"}}`)); err == nil {
			t.Error("an unknown phase was taken")
		}
		if _, err := k.Request(t.Context(), "PATCH", prPath+"/c-1", merge, []byte(`{"spec":{"clusterIdentity":{"clusterID":"c-2"}}}`)); err == nil {
			t.Error("the cluster ID changed")
		}
	})
	t.Run("Advertisement", func(t *testing.T) {
		var a api.Advertisement
		read(t, advPath+"/c-17", &a)
		if a.Status.AdvertisementStatus != "" || a.Status.Reason != "" || a.Spec.ResourceQuota.Hard["memory"] != "7.5Gi" || a.Spec.TimeToLive.IsZero() {
			t.Errorf("%+v", a)
		}
		request(t, k, "PATCH", advPath+"/c-17/status", merge, `{"status":{"advertisementStatus":"Accepted","vnodeReference":{"name":"liqo-c-17"}}}`)
		if read(t, advPath+"/c-17", &a); a.Status.AdvertisementStatus != api.AdvertisementAccepted || a.Status.VnodeReference.Name != "liqo-c-17" {
			t.Errorf("after writing the status: %+v", a)
		}
	})
	t.Run("kubectl", func(t *testing.T) {
		for _, tc := range []struct {
			args         []string
			header, cell string
		}{
			{[]string{"get", "pr", "c-1"}, "NAME CLUSTER NAME PHASE REASON ADVERTISEMENT AGE", "Refused"},
			{[]string{"get", "pr", "c-1", "-o", "wide"}, "NAME CLUSTER NAME PHASE REASON ADVERTISEMENT AGE MESSAGE", "It is."},
			{[]string{"get", "adv", "c-17"}, "NAME STATUS CPU MEMORY PODS EXPIRES AGE", "3900m 7.5Gi 110 2026-11-01T06:00:00Z"},
			{[]string{"get", "adv", "c-17", "-o", "wide"}, "NAME STATUS CPU MEMORY PODS EXPIRES AGE ARCH NODE REASON", ""},
			{[]string{"get", "fc"}, "", ""},
		} {
			var out string
			within(t, fmt.Sprint(tc.args), func() (err error) { // kubectl's discovery lags behind a moment
				out, err = k.Kubectl(t.Context(), tc.args...)
				return err
			})
			out = strings.Join(strings.Fields(out), " ")
			if !strings.HasPrefix(out, tc.header) || !strings.Contains(out, tc.cell) {
				t.Errorf("kubectl %v: %s", tc.args, out)
			}
		}
		for path, want := range map[string]string{
			"pr.spec.authUrl": "endpoint of the consumer", "adv.spec.resourceQuota.hard": "Kubernetes quantity", "adv.status.vnodeReference": "virtual node",
		} {
			if out, err := k.Kubectl(t.Context(), "explain", path); err != nil || !strings.Contains(out, want) {
				t.Errorf("kubectl explain %s: %v\n%s", path, err, out)
			}
		}
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
			read(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+manifest.Name, &found)
			// The server fills in nothing there, which is how the agent sees that it has nothing to write.
			var w, f any
			if json.Unmarshal(wanted.Spec.Versions[0], &w) != nil || json.Unmarshal(found.Spec.Versions[0], &f) != nil || fmt.Sprint(w) != fmt.Sprint(f) {
				t.Errorf("%s:\n%v\n%v", manifest.Name, w, f)
			}
		}
	})
}
