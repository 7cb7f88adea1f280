package reference

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/cli"
	"liqo.io/agent/internal/generated"
)

// TestCommands keeps the reference in step with the command tree. After a change
// of a command: go test ./internal/reference -update
func TestCommands(t *testing.T) {
	generated.File(t, "../../docs/commands.md", Markdown())
}

// The contract of exit codes is one table in two documents.
func TestExitCodes(t *testing.T) {
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "### Exit codes")
	table, _, _ = strings.Cut(table, "\n#")
	var documented, declared []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	for _, c := range cli.ExitCodes() {
		declared = append(declared, strconv.Itoa(c.Code))
	}
	if diff := cmp.Diff(declared, documented); diff != "" {
		t.Errorf("docs/cli.md (-declared +documented):\n%s", diff)
	}
}

func TestEveryCommandHasItsPlace(t *testing.T) {
	pages := make(map[string]string)
	for _, p := range (Manual{}).Pages() {
		pages[p.File] = plain(p.Text)
	}
	reference, overview := Markdown(), pages["liqo-agent.1"]
	seen := 0
	var walk func(all []cli.Command)
	walk = func(all []cli.Command) {
		for _, c := range all {
			seen++
			if len(c.Path) == 1 && !strings.Contains(overview, pageOf(c)+"(1)") {
				t.Errorf("liqo-agent.1 does not name %s", pageOf(c))
			}
			if !strings.Contains(reference, "# "+name(c)+"\n") {
				t.Errorf("docs/commands.md has no heading %q", name(c))
			}
			page := pages[pageOf(c)+".1"]
			wanted := []string{}
			if len(c.Commands) == 0 {
				wanted = append(wanted, c.Synopsis, strings.ReplaceAll(flow(c.About), "\n\n", "\n.PP\n"))
				wanted = append(wanted, c.Examples...)
			}
			for _, o := range c.Options {
				wanted = append(wanted, o.Names...)
				wanted = append(wanted, o.Environment...)
			}
			for _, want := range wanted {
				if !strings.Contains(page, want) {
					t.Errorf("%s.1 lacks %q of %s:\n%s", pageOf(c), want, name(c), page)
				}
			}
			walk(c.Commands)
		}
	}
	walk(cli.Describe())
	if seen < 45 {
		t.Errorf("only %d commands were found", seen)
	}
}

func TestEveryKeyHasItsPlace(t *testing.T) {
	pages := (Manual{}).Pages()
	last := pages[len(pages)-1]
	if last.File != "liqo-agent.toml.5" {
		t.Fatalf("the last page is %s", last.File)
	}
	page := plain(last.Text)
	for _, s := range config.Describe() {
		if !strings.Contains(page, "["+s.Name+"]") {
			t.Errorf("there is no section %s", s.Name)
		}
		for _, k := range s.Keys {
			for _, want := range []string{k.Name + " = " + k.Default + "\n", k.Doc, k.Allowed, k.Env} {
				if !strings.Contains(page, want) {
					t.Errorf("%s.%s: the page lacks %q", s.Name, k.Name, want)
				}
			}
		}
	}
	for _, key := range config.Keys() {
		section, name, _ := strings.Cut(key, ".")
		if !strings.Contains(page, config.EnvName(key)) {
			t.Errorf("the page lacks %s of [%s]", name, section)
		}
	}
}

// plain undoes what roff needs, as far as these pages use it.
func plain(text string) string {
	text = regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(text, "")
	return strings.NewReplacer(`\&`, "", `\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\(dq`, `"`, `\e`, `\`).Replace(text)
}

func TestSameBytes(t *testing.T) {
	m := Manual{Version: "1.2.3", Date: time.Unix(1763800000, 0)}
	if diff := cmp.Diff(m.Pages(), m.Pages()); diff != "" {
		t.Error(diff)
	}
	first := m.Pages()[0].Text
	if want := ".TH \"LIQO\\-AGENT\" 1 \"2025-11-22\" \"liqo\\-agent 1.2.3\" \"liqo\\-agent\"\n"; !strings.HasPrefix(first, want) {
		t.Errorf("it begins with %q, want %q", first[:80], want)
	}
	if undated := (Manual{}).Pages()[0].Text; !strings.HasPrefix(undated, ".TH \"LIQO\\-AGENT\" 1 \"\" \"liqo\\-agent\" ") {
		t.Errorf("without version and date it begins with %q", undated[:80])
	}
}

func TestRoffIsTakenForText(t *testing.T) {
	var r roff
	r.paragraphs(".so /etc/shadow\n'quoted' \\n(hh and half-way to --no-wait\n\nsecond")
	r.example(".dot", "'tick' ~x ^y `z` \\")
	want := `\&.so /etc/shadow \(aqquoted\(aq \en(hh and half-way to \-\-no\-wait
.PP
second
.RS 4
.EX
\&.dot
\&\(aqtick\(aq \(tix \(hay \(gaz\(ga \e
.EE
.RE
`
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFormatters has the formatters that are installed read the pages.
func TestFormatters(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, p := range (Manual{Version: "1.2.3", Date: time.Unix(1763800000, 0)}).Pages() {
		file := filepath.Join(dir, p.File)
		if err := os.WriteFile(file, []byte(p.Text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, formatter := range [][]string{{"groff", "-man", "-Tutf8", "-ww", "-z"}, {"mandoc", "-T", "lint", "-W", "warning"}} {
		t.Run(formatter[0], func(t *testing.T) {
			if _, err := exec.LookPath(formatter[0]); err != nil {
				t.Skip(formatter[0] + " is not installed")
			}
			for _, file := range files {
				out, err := exec.Command(formatter[0], append(formatter[1:], file)...).CombinedOutput()
				if err != nil || len(out) > 0 {
					t.Errorf("%s: %v\n%s", filepath.Base(file), err, out)
				}
			}
		})
	}
}
