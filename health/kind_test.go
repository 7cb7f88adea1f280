package health

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/generated"
)

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// documented returns the arguments that the comments in kinds.go promise, by code.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for _, m := range regexp.MustCompile(`(?s)((?:\t// [^\n]*\n)+)\t(\w+) = &Kind\{\n\t\tCode: "([a-z0-9-]+)"`).FindAllStringSubmatch(string(text), -1) {
		comment := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "//", " ")), " ")
		if !strings.HasPrefix(comment, m[2]+": ") {
			t.Errorf("the comment of %s does not begin with its name: %s", m[2], comment)
		}
		_, args, _ := strings.Cut(comment, "Arguments: ")
		var names []string
		if args = strings.TrimSuffix(args, "."); args != "none" && args != "" {
			names = strings.Split(args, ", ")
		}
		out[m[3]] = names
	}
	return out
}

func TestEveryKindIsWhole(t *testing.T) {
	codes, said := make(map[string]bool), documented(t)
	seenWarning := false
	for _, k := range All() {
		t.Run(k.Code, func(t *testing.T) {
			if !regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)*$`).MatchString(k.Code) || codes[k.Code] {
				t.Errorf("the code %q is none, or used twice", k.Code)
			}
			codes[k.Code] = true
			for what, text := range map[string]string{"title": k.Title, "text": k.Text, "remedy": k.Remedy, "doc": k.Doc} {
				if text == "" || text != strings.TrimSpace(text) {
					t.Errorf("%s %q", what, text)
				}
			}
			if !strings.HasSuffix(k.Doc, ".") || strings.HasSuffix(k.Text, ".") || strings.HasSuffix(k.Title, ".") || strings.HasSuffix(k.Remedy, ".") {
				t.Error("the doc ends with a full stop, and nothing else does")
			}
			if k.Severity != Error && k.Severity != Warning || k.Grace < 0 || k.Grace > time.Hour {
				t.Errorf("severity %q, grace %v", k.Severity, k.Grace)
			}
			if k.Severity == Error && seenWarning {
				t.Error("an error after a warning in All")
			}
			seenWarning = seenWarning || k.Severity == Warning
			promised, ok := said[k.Code]
			if !ok {
				t.Fatal("its comment was not found")
			}
			for _, m := range placeholder.FindAllStringSubmatch(k.Text+k.Remedy, -1) {
				if !slices.Contains(promised, m[1]) {
					t.Errorf("{%s} is not among the arguments of its comment: %v", m[1], promised)
				}
			}
		})
	}
	if len(said) != len(all) {
		t.Errorf("%d kinds are declared, and All has %d", len(said), len(all))
	}
}

// TestAgentGivesEveryArgument finds the arguments that are given where the agent
// sets a problem.
func TestAgentGivesEveryArgument(t *testing.T) {
	given := givenArguments(t, "../agent")
	names := kindNames(t)
	for _, k := range All() {
		name := names[k.Code]
		all, used := given[name]
		if !used {
			t.Errorf("%s (%s) is never reported", name, k.Code)
			continue
		}
		for _, m := range placeholder.FindAllStringSubmatch(k.Text+k.Remedy, -1) {
			if !slices.Contains(all, m[1]) {
				t.Errorf("{%s} of %s (%s) is never given; given are %v", m[1], name, k.Code, all)
			}
		}
	}
}

// kindNames returns the names of the variables by code.
func kindNames(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, m := range regexp.MustCompile(`\t(\w+) = &Kind\{\n\t\tCode: "([a-z0-9-]+)"`).FindAllStringSubmatch(string(text), -1) {
		out[m[2]] = m[1]
	}
	return out
}

// givenArguments returns by kind the keys of all literals of Args in the functions
// that name the kind.
func givenArguments(t *testing.T, dir string) map[string][]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	out := make(map[string][]string)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			var kinds, keys []string
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "health" {
						kinds = append(kinds, n.Sel.Name)
					}
					if n.Sel.Name == "Report" {
						keys = append(keys, "error")
					}
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.BasicLit); ok {
						keys = append(keys, strings.Trim(key.Value, `"`))
					}
					if key, ok := n.Key.(*ast.Ident); ok && key.Name == "PortTaken" {
						keys = append(keys, "error") // supervise reports it
					}
				}
				return true
			})
			for _, k := range kinds {
				out[k] = append(out[k], keys...)
			}
		}
	}
	return out
}

func TestFill(t *testing.T) {
	for _, tc := range []struct {
		text string
		args Args
		want string
	}{
		{"plain", nil, "plain"},
		{"{a} and {b}", Args{"a": "1", "b": "{a}"}, "1 and {a}"}, // what others say is not looked into
		{"{a} and {b}", Args{"a": "1"}, "1 and {b}"},
	} {
		if got := fill(tc.text, tc.args); got != tc.want {
			t.Errorf("fill(%q, %v) = %q, want %q", tc.text, tc.args, got, tc.want)
		}
	}
}

func TestReason(t *testing.T) {
	for code, want := range map[string]string{"disk-full": "DiskFull", "open-to-anybody": "OpenToAnybody", "a--b-": "AB", "": ""} {
		if got := Reason(code); got != want {
			t.Errorf("Reason(%q) = %q, want %q", code, got, want)
		}
	}
}

const listBegin, listEnd = "<!-- The list is generated: go test ./health -update -->\n", "<!-- End of the list. -->\n"

// TestDocsListEveryProblem keeps docs/health.md equal to the code.
func TestDocsListEveryProblem(t *testing.T) {
	generated.Section(t, "../docs/health.md", listBegin, listEnd, list())
}

// list is every kind as the document has it.
func list() string {
	var b bytes.Buffer
	for _, severity := range []Severity{Error, Warning} {
		fmt.Fprintf(&b, "\n## %s\n", map[Severity]string{Error: "Errors", Warning: "Warnings"}[severity])
		for _, k := range All() {
			if k.Severity != severity {
				continue
			}
			shown := "at once"
			if k.Grace > 0 {
				shown = "after " + strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(k.Grace.String())
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s: %s\n\n", k.Code, k.Title, inWords(k.Text))
			fmt.Fprintf(&b, "%s\n\nTry: %s. Shown %s; in Kubernetes `%s`.\n", k.Doc, cmp.Or(inWords(k.Remedy), "nothing"), shown, k.Reason())
		}
	}
	b.WriteString("\n")
	return b.String()
}

// inWords shows what is put into a text in italics.
func inWords(text string) string {
	text = strings.NewReplacer("[[", "\\[\\[", "]]", "\\]\\]", "_", "\\_").Replace(text)
	return placeholder.ReplaceAllString(text, "*$1*")
}
