package rbac

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/generated"
)

// What people read says the same as what is applied.
func TestManifest(t *testing.T) {
	text, err := Manifest("edge", true)
	if err != nil {
		t.Fatal(err)
	}
	var shown []any
	for _, document := range strings.Split(string(text), "\n---\n")[1:] {
		var one any
		if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		shown = append(shown, one)
	}
	listed, err := ManifestJSON("edge", true)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []any }
	if err := json.Unmarshal(listed, &list); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(shown, list.Items) {
		t.Errorf("the manifests differ:\n%s\n%s", text, listed)
	}
	for _, r := range append(Rules("edge"), LiqoRules()...) {
		if !bytes.Contains(text, []byte("# "+r.Reason+"\n")) || !bytes.Contains(text, []byte("# "+string(r.Part)+"\n")) {
			t.Errorf("the manifest does not say %q", r.Reason)
		}
	}
	if again, err := Manifest("edge", true); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the same arguments give something else: %v", err)
	}
	if plain, err := Manifest("edge", false); err != nil || !bytes.HasPrefix(text, plain) || bytes.Contains(plain, []byte("kind: ClusterRole\nmetadata:\n  name: liqo-agent-liqo")) {
		t.Errorf("without Liqo: %v\n%s", err, plain)
	}
	inCluster, err := ManifestInCluster("edge")
	if err != nil || bytes.Contains(inCluster, []byte("kind: Secret")) || !bytes.Contains(inCluster, []byte("kind: ServiceAccount\n")) {
		t.Errorf("for a pod: %v\n%s", err, inCluster)
	}
}

// A namespace may be called like a number: what people read says that it is a name.
func TestManifestOfOddNamespace(t *testing.T) {
	for _, namespace := range []string{"42", "1e3", "true", "null", "no"} {
		text, err := Manifest(namespace, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n")[1:] {
			var one struct {
				Kind     string
				Metadata struct{ Name, Namespace any }
				Subjects []struct{ Namespace any }
			}
			if err := yaml.Unmarshal([]byte(document), &one); err != nil {
				t.Fatal(err)
			}
			names := []any{one.Metadata.Name}
			if one.Metadata.Namespace != nil || one.Kind == "ServiceAccount" {
				names = append(names, one.Metadata.Namespace)
			}
			for _, s := range one.Subjects {
				names = append(names, s.Namespace)
			}
			for _, name := range names {
				if _, ok := name.(string); !ok {
					t.Errorf("%q: %v is no name:\n%s", namespace, name, document)
				}
			}
		}
	}
}

func TestManifestWantsANamespace(t *testing.T) {
	for _, namespace := range []string{"", "Liqo", "a b", "-", "x\nkind: Secret", strings.Repeat("x", 64)} {
		for _, make := range []func(string, bool) ([]byte, error){Manifest, ManifestJSON, func(n string, _ bool) ([]byte, error) { return ManifestInCluster(n) }} {
			if text, err := make(namespace, true); err == nil || !strings.Contains(err.Error(), "namespace") {
				t.Errorf("%q: %v\n%s", namespace, err, text)
			}
		}
	}
}

// The documentation shows the rules as they are; -update writes them there.
func TestDocumented(t *testing.T) {
	generated.Section(t, "../docs/security.md", "<!-- rbac.Rules; go test ./rbac -update -->\n```yaml\n", "```\n", string(RolesText()))
}
