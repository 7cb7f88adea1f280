package api

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the manifests under crds")

func TestManifestsMatchTypes(t *testing.T) {
	g, err := newGenerator(".")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := g.manifests()
	if err != nil {
		t.Fatal(err)
	}
	if len(crds) == 0 {
		t.Fatal("no type is marked as a root object")
	}
	for name, crd := range crds {
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile("crds/"+name+".yaml", text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		at := slices.IndexFunc(CRDs(), func(m Manifest) bool { return m.Name == name })
		if at < 0 {
			t.Errorf("%s: no manifest is embedded; run go test ./api -update", name)
			continue
		}
		if diff := cmp.Diff(string(CRDs()[at].YAML), string(text)); diff != "" {
			t.Errorf("%s differs from the Go types; run go test ./api -update\n%s", name, diff)
		}
	}
	if !*update && len(CRDs()) != len(crds) {
		t.Errorf("%d manifests are embedded for %d kinds; remove the others", len(CRDs()), len(crds))
	}
}

// TestSchemaCoversEveryField compares the manifest with what the Go types
// really marshal to, independently of the generator.
func TestSchemaCoversEveryField(t *testing.T) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(CRDs()[0].YAML, &crd); err != nil {
		t.Fatal(err)
	}
	var full ForeignCluster
	fill(reflect.ValueOf(&full).Elem())
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	delete(value, "metadata")
	props := crd.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)
	for _, part := range []string{"spec", "status"} {
		compare(t, part, props[part].(map[string]any), value[part])
	}
}

// compare fails the test for every field that only one of schema and value has,
// and every type that differs.
func compare(t *testing.T, path string, schema map[string]any, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		props, _ := schema["properties"].(map[string]any)
		for name := range props {
			if _, ok := v[name]; !ok {
				t.Errorf("%s.%s is in the manifest, not in the Go type", path, name)
			}
		}
		for name, field := range v {
			sub, ok := props[name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s is in the Go type, not in the manifest", path, name)
				continue
			}
			if sub["description"] == nil && path != "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			compare(t, path+"."+name, sub, field)
		}
	case []any:
		compare(t, path+"[]", schema["items"].(map[string]any), v[0])
	default:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "integer"}
		if got := schema["type"]; got != want[reflect.TypeOf(value).Kind()] {
			t.Errorf("%s has type %v in the manifest and is %T in Go", path, got, value)
		}
	}
}

// fill gives every field a value that is not its zero value.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[metav1.Time]() {
		v.Set(reflect.ValueOf(metav1.Unix(1, 0)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "ObjectMeta" {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	}
}

func TestEnumsListEveryConstant(t *testing.T) {
	text := string(CRDs()[0].YAML)
	for _, value := range []string{
		string(DiscoveryLAN), string(DiscoveryWAN), string(DiscoveryManual), string(DiscoveryIncomingPeering),
		string(TrustUnknown), string(TrustTrusted), string(TrustUntrusted),
		string(RoleUnknown), string(RoleConsumer), string(RoleProvider), string(RoleConsumerAndProvider),
		string(AuthPending), string(AuthAccepted), string(AuthRefused), string(AuthEmptyRefused),
		string(AdvertisementAccepted), string(AdvertisementRefused),
	} {
		if !strings.Contains(text, "- "+value+"\n") {
			t.Errorf("no enum of the manifest lists %s", value)
		}
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fc ForeignCluster
		fill(reflect.ValueOf(&fc).Elem())
		fc.Labels = map[string]string{"a": rapid.String().Draw(t, "label")}
		before, err := json.Marshal(fc)
		if err != nil {
			t.Fatal(err)
		}
		list := &ForeignClusterList{Items: []ForeignCluster{fc}}
		for _, c := range []*ForeignCluster{fc.DeepCopy(), &list.DeepCopyObject().(*ForeignClusterList).Items[0]} {
			if diff := cmp.Diff(&fc, c); diff != "" {
				t.Fatalf("the copy differs:\n%s", diff)
			}
			c.Labels["a"] += "x"
			scribble(reflect.ValueOf(&c.Spec).Elem())
			scribble(reflect.ValueOf(&c.Status).Elem())
			after, err := json.Marshal(fc)
			if err != nil {
				t.Fatal(err)
			}
			if string(before) != string(after) {
				t.Fatalf("changing the copy changed the original:\n%s\n%s", before, after)
			}
		}
	})
}

// scribble overwrites what v points to, in place.
func scribble(v reflect.Value) {
	if v.Type() == reflect.TypeFor[metav1.Time]() {
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(2, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		scribble(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.String:
		v.SetString("scribbled")
	case reflect.Int64:
		v.SetInt(99)
	case reflect.Bool:
		v.SetBool(false)
	}
}

func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, pkg := range strings.Fields(string(out)) {
		for _, no := range []string{"k8s.io/api/", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "liqo.io/agent/"} {
			if strings.HasPrefix(pkg, no) && pkg != "liqo.io/agent/api" {
				t.Errorf("imports %s", pkg)
			}
		}
	}
}
