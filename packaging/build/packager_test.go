package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)

// Versions as git describe says them, each newer than the one before.
func TestVersionsAreOrdered(t *testing.T) {
	cases := []struct {
		describe string
		time     time.Time
		want     string
	}{
		{"unknown", at, "0.0.0~git20261122070000.unknown"},
		{"740a606", at.Add(time.Second), "0.0.0~git20261122070001.740a606"},
		{"740a606-dirty", at.Add(time.Second), "0.0.0~git20261122070001.740a606+dirty"},
		{"0a0a606", at.Add(time.Hour), "0.0.0~git20261122080000.0a0a606"},
		{"v0.1.0-rc.1", at, "0.1.0~rc.1"},
		{"v0.1.0-rc.1-3-gabcdef0", at, "0.1.0~rc.1+3.gabcdef0"},
		{"v0.1.0-rc.2", at, "0.1.0~rc.2"},
		{"v0.1.0", at, "0.1.0"},
		{"v0.1.0-dirty", at, "0.1.0+dirty"},
		{"v0.1.1-9-gabcdef0", at, "0.1.1+9.gabcdef0"},
		{"v0.1.1-10-g0bcdef0", at, "0.1.1+10.g0bcdef0"},
		{"0.2.0", at, "0.2.0"},
		{"v0.10.0", at, "0.10.0"},
	}
	last := ""
	for _, c := range cases {
		got, err := packageVersion(c.describe, c.time)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.describe, got, err, c.want)
		}
		if last != "" {
			if out, err := exec.Command("dpkg", "--compare-versions", last+"-1", "lt", got+"-1").CombinedOutput(); err != nil {
				t.Errorf("dpkg does not take %s for older than %s: %v %s", last, got, err, out)
			}
			out, err := exec.Command("rpm", "--eval", `%{lua:print(rpm.vercmp("`+last+`","`+got+`"))}`).CombinedOutput()
			if strings.TrimSpace(string(out)) != "-1" || err != nil {
				t.Errorf("rpm does not take %s for older than %s: %v %s", last, got, err, out)
			}
		}
		last = got
	}
	for _, bad := range []string{"", "v1", "1.2", "v1.2.3-", "1.2.3;rm -rf", "v1.2.3-rc_1", "main"} {
		if got, err := packageVersion(bad, at); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// compile builds a small program and returns its path.
func compile(t *testing.T, goarch string, env ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./testdata/stub")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOARM=7", "GOARCH="+goarch), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestOnlyBinariesThatFitArePacked(t *testing.T) {
	native := compile(t, "amd64")
	for name, c := range map[string]struct{ target, path, want string }{
		"right":           {"amd64", native, ""},
		"another machine": {"arm64", native, "not for EM_AARCH64"},
		"another class":   {"armv7", native, "not for EM_ARM"},
		"an older ARM":    {"armv7", compile(t, "arm", "GOARM=6"), "GOARM=6"},
		"no program":      {"amd64", "version.go", "bad magic"},
		"dynamic":         {"amd64", "/bin/sh", ""}, // refused either way: for its machine, or as linked dynamically
	} {
		target := targets[c.target]
		target.binary = c.path
		_, err := target.check()
		switch {
		case name == "right" && err != nil:
			t.Errorf("%s: %v", name, err)
		case name != "right" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestBillOfMaterials(t *testing.T) {
	self, err := os.Executable() // has modules in it, as every test of this module
	if err != nil {
		t.Fatal(err)
	}
	program := target{binary: compile(t, "amd64"), machine: targets["amd64"].machine, class: targets["amd64"].class, goarch: "amd64"}
	info, err := program.check()
	if err != nil {
		t.Fatal(err)
	}
	one, err := bom(self, info, "1.0.0+3.gabc", at)
	if err != nil {
		t.Fatal(err)
	}
	two, err := bom(self, info, "1.0.0+3.gabc", at)
	if err != nil || !bytes.Equal(one, two) {
		t.Fatalf("made again it is another one (%v)", err)
	}
	var d document
	if err := json.Unmarshal(one, &d); err != nil {
		t.Fatal(err)
	}
	serial := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`)
	if d.SpecVersion != "1.6" || !serial.MatchString(d.SerialNumber) || d.Metadata.Component.PURL != "pkg:golang/liqo.io/agent/packaging/build@1.0.0%2B3.gabc" {
		t.Errorf("%s", one)
	}
	if !slices.ContainsFunc(d.Components, func(c component) bool {
		return c.Name == "std" && c.PURL == "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")
	}) {
		t.Errorf("the standard library is missing in %s", one)
	}
	if len(d.Dependencies) != 1 || len(d.Dependencies[0].On) != len(d.Components) {
		t.Errorf("dependencies are not the components: %+v", d.Dependencies)
	}
}
