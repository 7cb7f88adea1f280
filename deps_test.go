package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "liqo.io/agent"

// layers say who may import whom: a package may import those of lower layers,
// its own subpackages, and what sideways lists. Whoever adds a package gives it
// a place here.
var layers = map[string]int{
	".":   4,
	"cli": 3,

	"agent": 2, "doctor": 2,

	"rbac": 1, "service": 1,
	"discovery": 1, "liqo": 1, "network": 1, "peering": 1, "sharing": 1, "endpoint": 1, "mdnssvc": 1, "dnssd": 1, "ifwatch": 1, "trust": 1, "state": 1,

	"api": 0, "health": 0, "kube": 0, "peer": 0, "migrations": 0, "relay": 0, "throttle": 0,
}

// sideways are the imports allowed within one layer.
var sideways = map[string][]string{
	"discovery": {"endpoint", "state"},
	"doctor":    {"agent"},
	"endpoint":  {"trust"},
	"health":    {"peer"},
	"kube":      {"peer"},
	"liqo":      {"endpoint"},
	"mdnssvc":   {"ifwatch"},
	"peering":   {"endpoint", "liqo", "sharing", "trust"},
	"rbac":      {"liqo", "sharing"},
	"sharing":   {"network"},
}

// forbidden are packages that must not get into the binary, each with the reason.
var forbidden = map[string]string{
	"k8s.io/client-go/kubernetes":              "the typed clientset doubles the binary; use the dynamic client",
	"k8s.io/client-go/dynamic/dynamicinformer": "it pulls in the typed clientset; build the informer on a ListWatch of our own",
	"k8s.io/client-go/informers":               "it pulls in the typed clientset",
	"sigs.k8s.io/controller-runtime":           "more than doubles the binary",
	"github.com/kardianos/service":             "its templates have the linker keep all methods of all types; systemctl does the rest",
	"github.com/mattn/go-sqlite3":              "needs cgo; use modernc.org/sqlite",
	module + "/internal":                       "test beds and simulations are no part of the product",
	"testing":                                  "belongs into tests",
}

// goList runs the go command as the build does, without cgo unless said.
func goList(t *testing.T, cgo string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.Output()
	if err != nil {
		message := ""
		if exit, ok := err.(*exec.ExitError); ok {
			message = string(exit.Stderr)
		}
		t.Fatalf("%v: %v\n%s", cmd.Args, err, message)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// top is the first element of a package's path within the module: "." for main.
func top(importPath string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/"), "/")
	return path.Clean(first)
}

func inside(importPath, tree string) bool {
	return importPath == tree || strings.HasPrefix(importPath, tree+"/")
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, line := range goList(t, "0", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		fields := strings.Fields(line)
		from, imports := fields[0], fields[1:]
		if inside(from, module+"/internal") {
			continue // test beds may use what they test
		}
		layer, known := layers[top(from)]
		if !known {
			t.Errorf("%s has no place among the layers", from)
			continue
		}
		for _, to := range imports {
			switch {
			case !inside(to, module):
				if from == module+"/peer" && strings.Contains(to, ".") {
					t.Errorf("%s imports %s: it is a leaf of the standard library only", from, to)
				}
			case top(to) == top(from):
				// A parent is built from its parts, never the other way round.
				if to != from && inside(from, to) {
					t.Errorf("%s imports %s, which it is a part of", from, to)
				}
			case layers[top(to)] > layer, layers[top(to)] == layer && !slices.Contains(sideways[top(from)], top(to)):
				t.Errorf("%s imports %s, which is not below it", from, to)
			}
		}
	}
}

// effects are what no package may import that a plan is made of.
var effects = []string{
	"context", "database/sql", "log", "log/slog", "net", "net/http", "os", "os/exec", "path/filepath", "sync", "sync/atomic", "syscall",
	"k8s.io/client-go", "k8s.io/apimachinery/pkg/api/errors", "k8s.io/apimachinery/pkg/watch", module + "/kube",
}

// pure are what decides and what reads the documents of others.
var pure = []string{"./peering/plan", "./liqo/document", "./liqo/engine", "./liqo/exchange"}

// Plans are made without I/O, and so are the values that they are made of. The types
// of apimachinery link more than that, but nothing of ours uses it here.
func TestPlansArePure(t *testing.T) {
	own := 0
	for _, line := range goList(t, "0", append([]string{"-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, pure...)...) {
		fields := strings.Fields(line)
		if inside(fields[0], "k8s.io/client-go") {
			t.Errorf("one of %s depends on %s", pure, fields[0])
		}
		if !inside(fields[0], module) {
			continue
		}
		own++
		for _, to := range fields[1:] {
			if slices.Contains(effects, to) || inside(to, "k8s.io/client-go") || inside(to, module+"/kube") {
				t.Errorf("%s, which one of %s depends on, imports %s", fields[0], pure, to)
			}
		}
	}
	if own < 4 {
		t.Errorf("only %d packages of ours: is this test still looking in the right place?", own)
	}
}

func TestWhatTheBinaryIsMadeOf(t *testing.T) {
	for _, dep := range goList(t, "0", "-deps", ".") {
		for tree, reason := range forbidden {
			if inside(dep, tree) {
				t.Errorf("the binary contains %s: %s", dep, reason)
			}
		}
	}
}

func TestNoCgo(t *testing.T) {
	for _, dep := range goList(t, "1", "-deps", "-f", `{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}`, ".") {
		if dep != "" {
			t.Errorf("%s uses cgo", dep)
		}
	}
}

// What the agent and the bed's programs both use has one version: each package of it is compiled once for both.
func TestSharedModulesAgree(t *testing.T) {
	versions := func(dir string) map[string]string {
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s in %s: %v", cmd, dir, err)
		}
		var mod struct {
			Require []struct{ Path, Version string }
			Replace []struct {
				Old struct{ Path string }
				New struct{ Version string }
			}
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		used := make(map[string]string)
		for _, m := range mod.Require {
			used[m.Path] = m.Version
		}
		for _, m := range mod.Replace {
			if _, ok := used[m.Old.Path]; ok {
				used[m.Old.Path] = m.New.Version
			}
		}
		return used
	}
	bed, shared := versions("internal/bed/kube"), 0
	for module, version := range versions(".") {
		other, ok := bed[module]
		if !ok {
			continue
		}
		if shared++; other != version {
			t.Errorf("%s is %s in go.mod, and %s in internal/bed/kube/go.mod", module, version, other)
		}
	}
	if shared < 30 {
		t.Errorf("only %d modules are shared: is this test still looking in the right places?", shared)
	}
}
