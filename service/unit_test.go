package service

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestUnit(t *testing.T) {
	if Unit(PackagedPath) != unit {
		t.Error("the unit of packages is not the file")
	}
	got := Unit("/opt/100%/agent")
	for _, want := range []string{"\nExecStart=/opt/100%%/agent run\n", "\nExecReload=/opt/100%%/agent config reload\n", "\nExecPaths=/opt/100%%/agent\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q", want)
		}
	}
	if strings.Contains(got, PackagedPath) {
		t.Error("the packaged path is still there")
	}
	// Where only the path is another one, nothing else may be.
	if back := strings.ReplaceAll(got, "/opt/100%%/agent", PackagedPath); back != unit {
		t.Error("more than the path was changed")
	}
	if strings.Contains(strings.ReplaceAll(unit, "%%", ""), "%") {
		t.Error("the unit has specifiers; Unit has to know of them")
	}
}

// TestEveryLineIsExplained reads the unit as a person does: what is set has a comment above, or follows one that says
// what several lines are for.
func TestEveryLineIsExplained(t *testing.T) {
	explained := false
	section := ""
	for i, line := range strings.Split(unit, "\n") {
		switch {
		case line == "":
			explained = false
		case strings.HasPrefix(line, "#"):
			explained = true
		case strings.HasPrefix(line, "["):
			section = line
			// What comes first in a section speaks for itself.
			explained = true
		case !explained:
			t.Errorf("line %d (%s) is not explained: %s", i+1, section, line)
		}
		if len(line) > 200 {
			t.Errorf("line %d is %d bytes long", i+1, len(line))
		}
	}
}

// TestWaitsForNobody: K3s tells systemd that it has started when its API server answers, which a database in a bad
// state can delay for ever.
func TestWaitsForNobody(t *testing.T) {
	for line := range strings.Lines(unit) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "After", "Wants":
			if value != "network-online.target" {
				t.Errorf("the unit waits for something: %s", line)
			}
		case "Requires", "Requisite", "BindsTo", "PartOf", "Upholds":
			t.Errorf("the unit depends on something: %s", line)
		}
	}
}

func TestSysusers(t *testing.T) {
	if !strings.Contains(Sysusers(), "\nu "+Name+" - ") {
		t.Errorf("no such user in:\n%s", Sysusers())
	}
}

// analyze runs systemd-analyze, or skips the test.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err
}

// newer are settings of the unit that systemd knows from 254 on. Older ones say so and go on.
var newer = regexp.MustCompile(`(?m)^.*Unknown key (name )?'(RestartSteps|RestartMaxDelaySec)' in section .*, ignoring\.\n`)

// written is the unit for a program that exists, in a file.
func written(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(path, []byte(Unit("/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerify(t *testing.T) {
	out, err := analyze(t, "verify", "--man=no", written(t))
	if out = newer.ReplaceAllString(out, ""); err != nil || out != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// It would say something about what is wrong.
	path := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(path, []byte(strings.Replace(Unit("/bin/true"), "Type=notify", "Type=notified", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := analyze(t, "verify", "--man=no", path); newer.ReplaceAllString(out, "") == "" {
		t.Error("systemd-analyze verify has nothing to say about a wrong unit")
	}
}

var (
	documented = regexp.MustCompile(`scores (\d+\.\d+) with systemd (\d+)`)
	measured   = regexp.MustCompile(`Overall exposure level for liqo-agent\.service: (\d+\.\d+)`)
)

// TestExposure holds the documented score against the unit: it may not get worse without somebody writing that down.
func TestExposure(t *testing.T) {
	page, err := os.ReadFile("../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := documented.FindStringSubmatch(string(page))
	if doc == nil {
		t.Fatal("docs/service.md does not tell the score of systemd-analyze security")
	}
	version, _ := analyze(t, "--version")
	if !strings.HasPrefix(version, "systemd "+doc[2]+" ") {
		t.Skipf("the documented score is that of systemd %s; each release counts differently, and this is %.12s", doc[2], version)
	}
	out, _ := analyze(t, "security", "--offline=true", "--no-pager", written(t))
	score := measured.FindStringSubmatch(out)
	if score == nil {
		t.Fatalf("systemd-analyze security:\n%s", out)
	}
	if score[1] != doc[1] {
		t.Errorf("the exposure level is %s; docs/service.md says %s", score[1], doc[1])
	}
}
