package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
)

// older are objects as agents with older definitions wrote them, by collection.
var older = map[string]string{
	fcPath:  `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"by-hand"},"spec":{"join":true,"authUrl":"https://192.0.2.1:6447"},"status":{"role":"Provider","ttl":77}}`,
	prPath:  `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":"c-1"},"spec":{"clusterIdentity":{"clusterID":"c-1"}},"status":{"phase":"Refused","message":"It is."}}`,
	advPath: `{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":"c-1"},"spec":{"clusterId":"c-1","timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"},"status":{"advertisementStatus":"Refused"}}`,
	sdPath:  `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"SearchDomain","metadata":{"name":"farms"},"spec":{"domain":"farms.example","autojoin":true}}`,
	ccPath:  `{"apiVersion":"config.liqo.io/v1alpha1","kind":"ClusterConfig","metadata":{"name":"liqo-configuration"},"spec":{"discoveryConfig":{"autojoin":false}}}`,
}

// TestResourcesUpgrade: objects that were stored under older definitions are there,
// with everything in them, after an agent brought the present ones.
func TestResourcesUpgrade(t *testing.T) {
	k := startKube(t)
	bare(t, k)
	files, err := filepath.Glob("testdata/crds-older/*.yaml")
	if err != nil || len(files) != len(older) {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = k.Apply(t.Context(), string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stored := make(map[string]map[string]any)
	for path, body := range older {
		var object map[string]any
		if err := json.Unmarshal([]byte(body), &object); err != nil {
			t.Fatal(err)
		}
		name := object["metadata"].(map[string]any)["name"].(string)
		within(t, path+" is served", func() error {
			_, err := k.Request(t.Context(), "POST", path, jsonMIME, []byte(body))
			if err != nil && strings.Contains(err.Error(), "already exists") {
				return nil
			}
			return err
		})
		if status, ok := object["status"]; ok {
			patch, _ := json.Marshal(map[string]any{"status": status})
			request(t, k, "PATCH", path+"/"+name+"/status", merge, string(patch))
		}
		stored[path+"/"+name] = read(t, func() ([]byte, error) { return k.Request(t.Context(), "GET", path+"/"+name, "", nil) })
	}
	installCRDs(t, k) // what an agent does at its start, but for the order
	for path, before := range stored {
		after := read(t, func() ([]byte, error) { return k.Request(t.Context(), "GET", path, "", nil) })
		for _, part := range []string{"spec", "status"} {
			if fmt.Sprint(before[part]) != fmt.Sprint(after[part]) {
				t.Errorf("%s: %s was %v, is %v", path, part, before[part], after[part])
			}
		}
		if fmt.Sprint(before["metadata"].(map[string]any)["uid"]) != fmt.Sprint(after["metadata"].(map[string]any)["uid"]) {
			t.Errorf("%s was replaced", path)
		}
	}
}

// TestNewerResourcesStay: an agent that was rolled back leaves the definitions of the
// newer one alone, and works with them.
func TestNewerResourcesStay(t *testing.T) {
	k := startKube(t)
	bare(t, k)
	for _, manifest := range api.CRDs() {
		var crd map[string]any
		if err := yaml.Unmarshal(manifest.YAML, &crd); err != nil {
			t.Fatal(err)
		}
		crd["metadata"].(map[string]any)["annotations"] = map[string]any{"liqo.io/crd-generation": "99"}
		schema := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		schema["properties"].(map[string]any)["spec"].(map[string]any)["properties"].(map[string]any)["invented"] = map[string]any{"type": "string"}
		text, err := yaml.Marshal(crd)
		if err == nil {
			err = k.Apply(t.Context(), string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const object = `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"SearchDomain","metadata":{"name":"farms"},"spec":{"domain":"farms.example","invented":"later"}}`
	within(t, "they are served", func() error {
		_, err := k.Request(t.Context(), "POST", sdPath, jsonMIME, []byte(object))
		return err
	})
	reg := newRegistry()
	reg.put(barn())
	c := run(t, direct(t, k), reg)
	awaitFC(t, k, string(barnID), hasURL(barn().URL))
	if theirs, ours := c.NewerCRDs(); theirs != 99 || ours >= 99 {
		t.Errorf("newer definitions: %d, ours %d", theirs, ours)
	}
	for _, manifest := range api.CRDs() {
		text, err := k.Request(t.Context(), "GET", crdsPath+manifest.Name, "", nil)
		if err != nil || !strings.Contains(string(text), `"invented"`) || !strings.Contains(string(text), `"liqo.io/crd-generation":"99"`) {
			t.Errorf("%s was changed: %v", manifest.Name, err)
		}
	}
	if text, err := k.Request(t.Context(), "GET", sdPath+"/farms", "", nil); err != nil || !strings.Contains(string(text), `"later"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func read(t *testing.T, get func() ([]byte, error)) map[string]any {
	t.Helper()
	text, err := get()
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
