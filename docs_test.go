package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
)

// page is one document, taken apart as far as these tests need it.
type page struct {
	path    string
	text    string
	prose   string   // without code
	code    []string // lines of code blocks, and code spans
	anchors []string // of its headings
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan = regexp.MustCompile("`[^`]+`")
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

func pages(t *testing.T) []page {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []page
	for _, file := range slices.Concat(files, decisions, []string{"README.md", "CHANGELOG.md"}) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := page{path: file, text: string(b)}
		p.prose = fence.ReplaceAllStringFunc(p.text, func(block string) string {
			p.code = append(p.code, strings.Split(block, "\n")...)
			return ""
		})
		for _, h := range heading.FindAllStringSubmatch(p.prose, -1) {
			p.anchors = append(p.anchors, anchor(h[1]))
		}
		p.prose = codeSpan.ReplaceAllStringFunc(p.prose, func(span string) string {
			p.code = append(p.code, strings.Trim(span, "`"))
			return ""
		})
		out = append(out, p)
	}
	return out
}

// anchor is the fragment by which a heading is linked to.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestDocsLinksResolve(t *testing.T) {
	all := pages(t)
	found := 0
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			file, fragment, _ := strings.Cut(m[1], "#")
			target := p.path
			if file != "" {
				target = path.Join(path.Dir(p.path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", p.path, m[1], err)
				continue
			}
			if fragment == "" {
				continue
			}
			if i := slices.IndexFunc(all, func(o page) bool { return o.path == target }); i < 0 || !slices.Contains(all[i].anchors, fragment) {
				t.Errorf("%s links to %s, where no heading is called that", p.path, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found: is this test still looking in the right places?", found)
	}
}

// shown finds commands of the agent in a line of code: at its start, or where a
// shell would begin a command.
var shown = regexp.MustCompile(`(?:^|\$ |\| |&& |; |try: |: )(?:sudo )?(?:[A-Z_]+=\S+ )*liqo-agent((?: +[^\s|;&#]+)+)`)

// help returns what the program prints about a command, and false when there is
// no such command.
func help(t *testing.T, words []string) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	app := cli.New(command.Options{Stdout: &out, Stderr: &out, Now: time.Now})
	err := app.Run(t.Context(), append([]string{command.Name, "help"}, words...))
	return out.String(), err == nil
}

func TestDocsShowCommandsThatExist(t *testing.T) {
	var checked []string
	for _, p := range pages(t) {
		for _, line := range p.code {
			for _, m := range shown.FindAllStringSubmatch(line, -1) {
				words := strings.Fields(m[1])
				if strings.ToUpper(words[0]) == words[0] {
					continue // a placeholder
				}
				checkCommand(t, p.path, words)
				checked = append(checked, words[0])
			}
		}
	}
	for _, want := range []string{"run", "peers", "scan", "status", "log"} {
		if !slices.Contains(checked, want) {
			t.Errorf("no %q among %d commands found: is this test still looking in the right places?", want, len(checked))
		}
	}
}

// checkCommand follows words through the command tree, and looks for the
// options among them in the help of the command they lead to.
func checkCommand(t *testing.T, where string, words []string) {
	t.Helper()
	command, rest := []string(nil), words
	about, _ := help(t, nil)
	for len(rest) > 0 && strings.Contains(about, "\nCOMMANDS:") && !strings.HasPrefix(rest[0], "-") {
		command, rest = append(command, rest[0]), rest[1:]
		var ok bool
		if about, ok = help(t, command); !ok {
			t.Errorf("%s shows liqo-agent %s: there is no such command", where, strings.Join(words, " "))
			return
		}
	}
	for _, option := range rest {
		name, _, _ := strings.Cut(option, "=")
		if name = strings.TrimRight(name, ".,:"); !strings.HasPrefix(name, "-") {
			continue
		}
		if !regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(name) + `($|[\s,])`).MatchString(about) {
			t.Errorf("%s shows liqo-agent %s: it has no option %s", where, strings.Join(words, " "), name)
		}
	}
}

// Where Liqo is installed, a ForeignCluster without its group is one of Liqo's (docs/liqo.md#names).
func TestDocsChangeOurForeignClusters(t *testing.T) {
	ambiguous := regexp.MustCompile(`kubectl (?:patch|edit|delete|describe) (?:fc|foreignclusters?)(?:$|[^.\w])`)
	for _, p := range pages(t) {
		for _, line := range p.code {
			if command := ambiguous.FindString(line); command != "" && p.path != "CHANGELOG.md" {
				t.Errorf("%s shows %q: say foreignclusters.discovery.liqo.io", p.path, strings.TrimSpace(command))
			}
		}
	}
}

func TestDocsNameMakeTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?:^|\$ )(?:[A-Z_]+=\S+ )*make((?: [a-z][a-z/-]*)+)`)
	found := 0
	for _, p := range pages(t) {
		for _, line := range p.code {
			m := command.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			for _, target := range strings.Fields(m[1]) {
				found++
				rule := ".PHONY: " + target + "\n"
				if strings.Contains(target, "/") { // a file
					rule = target + ":"
				}
				if !bytes.Contains(makefile, []byte("\n"+rule)) {
					t.Errorf("%s names make %s: there is no such target", p.path, target)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d targets were found: is this test still looking in the right places?", found)
	}
}

// sources parses every Go file of the module below dir for which keep holds.
func sources(t *testing.T, dir string, keep func(name string) bool, each func(folder string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || !keep(name) {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		each(filepath.ToSlash(filepath.Dir(name)), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// testsOnce is what tests returns: to parse all tests takes seconds.
var testsOnce map[string]map[string]bool

// tests are the functions of all test files as folder.Name, each with the strings in it if it runs subtests.
func tests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	if testsOnce != nil {
		return testsOnce
	}
	all := make(map[string]map[string]bool)
	sources(t, ".", isTest, func(folder string, f *ast.File) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			var names map[string]bool
			literals := make(map[string]bool)
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "t" && n.Sel.Name == "Run" {
						names = literals
					}
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
						literals[text] = true
					}
				}
				return true
			})
			all[folder+"."+fn.Name.Name] = names
		}
	})
	testsOnce = all
	return all
}

// What is said to be tested is tested: names such as endpoint.TestOrder.
func TestDocsNameTestsThatExist(t *testing.T) {
	exists := tests(t)
	// With a folder it is the name of a test of that folder; without one, and in
	// a command line, of any.
	name := regexp.MustCompile(`(?:^|[\s/.])((?:Test|Fuzz|Benchmark)[A-Z0-9]\w*)(\.\.\.)?`)
	found := 0
	for _, p := range pages(t) {
		for _, line := range p.code {
			if strings.HasPrefix(line, "func ") {
				continue // an example
			}
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				if m[2] != "" {
					continue // how names begin
				}
				found++
				folder, _, qualified := strings.Cut(line, "."+m[1])
				switch {
				case qualified && !strings.Contains(folder, " "):
					if _, ok := exists[folder+"."+m[1]]; !ok {
						t.Errorf("%s names the test %s, which does not exist", p.path, line)
					}
				default:
					if !hasTest(exists, m[1]) {
						t.Errorf("%s names the test %s, which does not exist", p.path, m[1])
					}
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d tests were found: is this test still looking in the right places?", found)
	}
}

// What attacks the agent is in docs/security.md, from where make attack runs it.
func TestDocsHaveEveryAttack(t *testing.T) {
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range tests(t) {
		if strings.Contains(name, ".TestAttack") && !bytes.Contains(text, []byte("`"+name+"`")) {
			t.Errorf("docs/security.md does not name the test %s", name)
		}
	}
}

func hasTest(exists map[string]map[string]bool, name string) bool {
	for full := range exists {
		if strings.HasSuffix(full, "."+name) {
			return true
		}
	}
	return false
}

// Every reason under which something is dropped or refused, and every one that an
// object, a pod or a command shows, is explained.
func TestDocsExplainEveryReason(t *testing.T) {
	b, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for dir, c := range map[string]struct {
		names func(folder, name string, spec *ast.ValueSpec) bool // whether a constant is a reason
		least int
	}{
		"mdnssvc":  {byType, 20},
		"endpoint": {byType, 20},
		"peering":  {byName, 50},
		"sharing":  {byName, 30},
	} {
		found := 0
		sources(t, dir, func(name string) bool { return !isTest(name) }, func(folder string, f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				for i, v := range spec.Values {
					text, ok := v.(*ast.BasicLit)
					if !ok || text.Kind != token.STRING || !c.names(folder, spec.Names[i].Name, spec) {
						continue
					}
					reason, err := strconv.Unquote(text.Value)
					if err != nil {
						t.Fatal(err)
					}
					found++
					if !bytes.Contains(b, []byte("`"+reason+"`")) {
						t.Errorf("docs/troubleshooting.md does not explain %q of package %s", reason, folder)
					}
				}
				return true
			})
		})
		if found < c.least {
			t.Errorf("only %d reasons were found in %s: is this test still looking in the right places?", found, dir)
		}
	}
}

// byType is for packages where reasons have a type of their own.
func byType(_, _ string, spec *ast.ValueSpec) bool { return isReason(spec.Type) }

// byName is for packages where reasons are strings, or all that there is.
func byName(folder, name string, _ *ast.ValueSpec) bool {
	if path.Base(folder) == "reason" {
		return true
	}
	rest, is := strings.CutPrefix(name, "Reason")
	return is && rest != "" && ast.IsExported(rest)
}

// isReason reports whether a constant's type is one of those that name reasons.
func isReason(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return name == "DropReason" || name == "RefusalReason" || name == "Reason"
}

// The picture of the demo is of the demo that there is: it has all of its chapters.
func TestPictureIsOfTheDemo(t *testing.T) {
	b, err := os.ReadFile("docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 200_000 {
		t.Errorf("docs/demo.svg has %d bytes", len(b))
	}
	var lines []string // the text of its elements
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			lines = append(lines, string(text))
		}
	}
	found := 0
	sources(t, "internal/bed/cmd/demo", func(string) bool { return true }, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "stay" // for people who look around by themselves
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || called.Sel.Name != "chapter" || len(n.Args) != 1 {
					return true
				}
				title, err := strconv.Unquote(n.Args[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				found++
				if !slices.Contains(lines, "== "+title) {
					t.Errorf("docs/demo.svg does not show %q: run make record", title)
				}
			}
			return true
		})
	})
	if found < 10 {
		t.Errorf("only %d chapters were found: is this test still looking in the right places?", found)
	}
}
