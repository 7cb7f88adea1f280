package doctor

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
)

// TestJudgeCRDs has the definitions as this version makes them, and then one of them
// changed by somebody.
func TestJudgeCRDs(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(object map[string]any)
		want   string // codes
	}{
		"as they are": {func(map[string]any) {}, ""},
		"of a newer agent": {func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{"liqo.io/crd-generation": "99"}
			o["spec"].(map[string]any)["versions"] = nil
		}, "newer-definitions"},
		"changed": {func(o map[string]any) { o["spec"].(map[string]any)["versions"] = nil }, "crds-other-version"},
		"annotated with nonsense and changed": {func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{"liqo.io/crd-generation": "newest"}
			o["spec"].(map[string]any)["versions"] = nil
		}, "crds-other-version"},
		"not served": {func(o map[string]any) { delete(o, "status") }, "crds-not-served"},
	} {
		found := make(map[string]map[string]any)
		for i, m := range api.CRDs() {
			var object map[string]any
			if err := yaml.Unmarshal(m.YAML, &object); err != nil {
				t.Fatal(err)
			}
			object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
			if i == 0 {
				tc.change(object)
			}
			found[m.Name] = object
		}
		var codes []string
		for _, f := range judgeCRDs(found, true) {
			if f.Status != OK {
				codes = append(codes, f.Code)
			}
		}
		if got := strings.Join(codes, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
