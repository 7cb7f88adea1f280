package install

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
)

var updateGenerations = flag.Bool("update-generations", false, "write the checksum of the manifests for the present generation")

// TestGenerations: when a custom resource definition changes, Generation has to.
// Until a generation is in a release, its line may be written anew:
// go test ./peering/install -run TestGenerations -update-generations
func TestGenerations(t *testing.T) {
	const path = "testdata/crd-generations"
	digest := sha256.New()
	for _, m := range api.CRDs() {
		fmt.Fprintf(digest, "%s\n", m.Name)
		digest.Write(m.YAML)
	}
	want := fmt.Sprintf("%d %x", Generation, digest.Sum(nil))
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if *updateGenerations {
		lines = append(lines[:min(Generation-1, len(lines))], want)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if lines[len(lines)-1] != want || len(lines) != Generation {
		t.Errorf("the custom resource definitions changed: they are %q, %s ends with %q. Raise Generation if the last one was released, then run this with -update-generations",
			want, path, lines[len(lines)-1])
	}
}

func TestGenerationOf(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "3": 3, "-1": 0, "x": 0, "1.5": 0, "99999999999999999999": 0} {
		manifest := map[string]any{}
		stampGeneration(manifest)
		if got := generationOf(manifest); got != Generation {
			t.Errorf("stamped %d", got)
		}
		manifest["metadata"].(map[string]any)["annotations"].(map[string]any)[annotationGeneration] = text
		if got := generationOf(manifest); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for _, odd := range []string{"{}", "metadata: 5", "metadata: {annotations: [a]}", "metadata: {annotations: {liqo.io/crd-generation: 7}}"} {
		var crd map[string]any
		if err := yaml.Unmarshal([]byte(odd), &crd); err != nil {
			t.Fatal(err)
		}
		if got := generationOf(crd); got != 0 {
			t.Errorf("%s: %d", odd, got)
		}
	}
}
