package api

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/generated"
)

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
	same := true
	for name, crd := range crds {
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if !generated.File(t, "crds/"+name+".yaml", string(text)) {
			same = false
			continue
		}
		if !slices.ContainsFunc(CRDs(), func(m Manifest) bool { return m.Name == name && bytes.Equal(m.YAML, text) }) {
			t.Errorf("%s: another manifest is embedded, or none", name)
		}
	}
	if same && (len(CRDs()) != len(crds) || len(crds) != len(kinds)) {
		t.Errorf("%d manifests are embedded for %d kinds; remove the others", len(CRDs()), len(crds))
	}
}

// kinds are all root types, by the name of their manifests.
var kinds = map[string]func() runtime.Object{
	"advertisements.sharing.liqo.io":    func() runtime.Object { return &Advertisement{} },
	"clusterconfigs.config.liqo.io":     func() runtime.Object { return &ClusterConfig{} },
	"foreignclusters.discovery.liqo.io": func() runtime.Object { return &ForeignCluster{} },
	"peeringrequests.discovery.liqo.io": func() runtime.Object { return &PeeringRequest{} },
	"searchdomains.discovery.liqo.io":   func() runtime.Object { return &SearchDomain{} },
}

// manifestSchema returns what a manifest says about its objects.
func manifestSchema(t *testing.T, name string) map[string]any {
	t.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	i := slices.IndexFunc(CRDs(), func(m Manifest) bool { return m.Name == name })
	if err := yaml.Unmarshal(CRDs()[i].YAML, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// TestSchemaCoversEveryField compares the manifests with what the Go types
// really marshal to, independently of the generator.
func TestSchemaCoversEveryField(t *testing.T) {
	for _, manifest := range CRDs() {
		t.Run(manifest.Name, func(t *testing.T) {
			full := kinds[manifest.Name]()
			fill(reflect.ValueOf(full).Elem())
			text, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			var value map[string]any
			if err := json.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			delete(value, "metadata")
			props := manifestSchema(t, manifest.Name)["properties"].(map[string]any)
			for _, part := range []string{"spec", "status"} {
				schema, there := props[part].(map[string]any)
				if _, has := value[part]; has != there {
					t.Errorf("%s: in the Go type %v, in the manifest %v", part, has, there)
				} else if there {
					compare(t, part, schema, value[part])
				}
			}
		})
	}
}

// TestDescriptions: what kubectl explain says about kinds and fields.
func TestDescriptions(t *testing.T) {
	for path, want := range map[string]string{
		"foreignclusters.discovery.liqo.io spec authUrl": "endpoint of the remote cluster", "peeringrequests.discovery.liqo.io spec authUrl": "endpoint of the consumer",
		"advertisements.sharing.liqo.io spec resourceQuota hard": "Kubernetes quantity", "advertisements.sharing.liqo.io status vnodeReference": "virtual node",
		"searchdomains.discovery.liqo.io spec domain": "such as example.com", "searchdomains.discovery.liqo.io spec server": "DNS over TLS",
		"searchdomains.discovery.liqo.io spec autojoin": "goes before the setting for all clusters", "searchdomains.discovery.liqo.io status found": "what the domain lists",
		"searchdomains.discovery.liqo.io status lastQuery outcome": "ServerFailure", "clusterconfigs.config.liqo.io": "wins over the configuration file and takes effect at once",
		"clusterconfigs.config.liqo.io spec discoveryConfig ttl": "how many seconds", "clusterconfigs.config.liqo.io spec authConfig allowEmptyToken": "playgrounds",
	} {
		fields := strings.Fields(path)
		at := manifestSchema(t, fields[0])
		for _, field := range fields[1:] {
			at, _ = at["properties"].(map[string]any)[field].(map[string]any)
		}
		if said, _ := at["description"].(string); !strings.Contains(strings.Join(strings.Fields(said), " "), want) {
			t.Errorf("%s: no %q in %q", path, want, said)
		}
	}
}

// TestBounds: an API server takes rules of CEL only over strings, lists and maps
// whose size is limited, and what peers write must be limited anyway.
func TestBounds(t *testing.T) {
	var walk func(t *testing.T, path string, schema map[string]any)
	walk = func(t *testing.T, path string, schema map[string]any) {
		switch schema["type"] {
		case "string":
			if schema["maxLength"] == nil && schema["enum"] == nil && schema["format"] == nil {
				t.Errorf("%s: a string of any length", path)
			}
		case "array":
			// Only the agent writes conditions, and they are as many as types.
			if schema["maxItems"] == nil && schema["x-kubernetes-list-type"] != "map" {
				t.Errorf("%s: a list of any length", path)
			}
			walk(t, path+"[]", schema["items"].(map[string]any))
		case "object":
			if values, ok := schema["additionalProperties"].(map[string]any); ok {
				if schema["maxProperties"] == nil {
					t.Errorf("%s: a map of any size", path)
				}
				walk(t, path+"{}", values)
			}
			props, _ := schema["properties"].(map[string]any)
			for name, sub := range props {
				walk(t, path+"."+name, sub.(map[string]any))
			}
		}
	}
	g, err := newGenerator(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ForeignCluster", "PeeringRequest", "Advertisement", "SearchDomain", "ClusterConfig"} {
		schema, err := g.schemaOf(ast.NewIdent(kind))
		if err != nil {
			t.Fatal(err)
		}
		walk(t, kind, schema)
	}
}

// compare fails the test for every field that only one of schema and value has,
// and every type that differs.
func compare(t *testing.T, path string, schema map[string]any, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		if values, ok := schema["additionalProperties"].(map[string]any); ok {
			compare(t, path+"{}", values, v["x"])
			return
		}
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
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "x"}))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	}
}

func TestEnumsListEveryConstant(t *testing.T) {
	var text string
	for _, manifest := range CRDs() {
		text += string(manifest.YAML)
	}
	for _, value := range []string{
		string(DiscoveryLAN), string(DiscoveryWAN), string(DiscoveryManual), string(DiscoveryIncomingPeering),
		string(TrustUnknown), string(TrustTrusted), string(TrustUntrusted),
		string(RoleUnknown), string(RoleConsumer), string(RoleProvider), string(RoleConsumerAndProvider),
		string(AuthPending), string(AuthAccepted), string(AuthRefused), string(AuthEmptyRefused),
		string(AdvertisementAccepted), string(AdvertisementRefused),
		string(RequestPending), string(RequestAccepted), string(RequestRefused),
		string(AcceptAutoMax), string(AcceptManual), string(EngineLiqo),
	} {
		if !strings.Contains(text, "- "+value+"\n") {
			t.Errorf("no enum of the manifest lists %s", value)
		}
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	for name, empty := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				original := empty()
				v := reflect.ValueOf(original).Elem()
				fill(v)
				original.(metav1.Object).SetLabels(map[string]string{"a": rapid.String().Draw(t, "label")})
				before, err := json.Marshal(original)
				if err != nil {
					t.Fatal(err)
				}
				c := original.DeepCopyObject()
				if diff := cmp.Diff(original, c); diff != "" {
					t.Fatalf("the copy differs:\n%s", diff)
				}
				c.(metav1.Object).GetLabels()["a"] += "x"
				scribble(reflect.ValueOf(c).Elem().FieldByName("Spec"))
				if status := reflect.ValueOf(c).Elem().FieldByName("Status"); status.IsValid() {
					scribble(status)
				}
				after, err := json.Marshal(original)
				if err != nil {
					t.Fatal(err)
				}
				if string(before) != string(after) {
					t.Fatalf("changing the copy changed the original:\n%s\n%s", before, after)
				}
			})
		})
	}
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
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("scribbled"))
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
