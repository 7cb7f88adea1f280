package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every exit code that is declared is described, once.
func TestExitCodesAreDescribed(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("command", "errors.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var declared, described []int
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Exit") && len(spec.Values) == 1 {
			code, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, code)
		}
		return true
	})
	for _, c := range ExitCodes() {
		described = append(described, c.Code)
		if c.Meaning == "" {
			t.Errorf("%d means nothing", c.Code)
		}
	}
	if len(declared) < 9 || !slices.Equal(declared, described) {
		t.Errorf("declared %v, described %v", declared, described)
	}
}

func TestDescribe(t *testing.T) {
	find := func(path string, all []Command) Command {
		for _, word := range strings.Fields(path) {
			i := slices.IndexFunc(all, func(c Command) bool { return c.Path[len(c.Path)-1] == word })
			if i < 0 {
				t.Fatalf("there is no %q", path)
			}
			if found := all[i]; strings.Join(found.Path, " ") == path {
				return found
			}
			all = all[i].Commands
		}
		return Command{}
	}
	all := Describe()
	option := func(path, name string) Option {
		for _, o := range find(path, all).Options {
			if slices.Contains(o.Names, name) {
				return o
			}
		}
		t.Fatalf("%s has no option %s", path, name)
		return Option{}
	}
	for _, tc := range []struct {
		path, name, value, def, env string
	}{
		{"peers connect", "--token", "TOKEN", "", "LIQO_AGENT_TOKEN"},
		{"peers connect", "--timeout", "DURATION", "1m0s", ""},
		{"peers connect", "-y", "", "", ""},
		{"peers list", "-o", "FORMAT", "table", ""},
		{"status", "--socket", "PATH", "", "LIQO_AGENT_STATE_SOCKET"},
		{"run", "--name", "NAME", "", "LIQO_AGENT_CLUSTER_NAME"},
		{"run", "--log-level", "VALUE", "", "LIQO_AGENT_LOG_LEVEL"},
		{"fleet init", "--name", "NAME", "", ""},
		{"fleet init", "--years", "YEARS", "10", ""},
	} {
		o := option(tc.path, tc.name)
		if o.Value != tc.value || o.Default != tc.def || strings.Join(o.Environment, " ") != tc.env || strings.Contains(o.Usage, "`") {
			t.Errorf("%s %s is %+v", tc.path, tc.name, o)
		}
	}
	if got := find("invite", all).Default; got != "create" {
		t.Errorf("invite stands for %q", got)
	}
	if got := find("peers alias", all); len(got.Examples) == 0 || !strings.HasPrefix(got.Synopsis, "liqo-agent peers alias ") || got.About == "" {
		t.Errorf("peers alias is %+v", got)
	}
}
