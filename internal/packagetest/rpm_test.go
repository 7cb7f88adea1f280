package packagetest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oldRPM  = "/mnt/old/liqo-agent-0.1.0-1.x86_64.rpm"
	newRPM  = "/mnt/new/liqo-agent-0.2.0-1.x86_64.rpm"
	rpmUnit = "/usr/lib/systemd/system/liqo-agent.service"
)

// rpm runs rpm on a database of the root's own. Debian's rpm wants to be told that it is meant.
func (r *root) rpm(args ...string) string {
	r.t.Helper()
	return r.run(append([]string{"rpm", "--force-debian", "--nodeps"}, args...)...)
}

// The whole life of the .rpm where no systemd runs, with presets as Fedora has them.
func TestRPM(t *testing.T) {
	r := newRoot(t)
	r.write("/usr/lib/systemd/system-preset/90-default.preset", "disable *\n", 0o644)
	r.rpm("--install", oldRPM)
	for path, want := range map[string]string{
		"/usr/bin/liqo-agent": "755 root:root",
		rpmUnit:               "644 root:root",
		config:                "644 root:root",
		"/var/lib/liqo-agent": "750 liqo-agent:liqo-agent",
		"/usr/share/zsh/site-functions/_liqo-agent": "644 root:root",
		"/usr/share/man/man1/liqo-agent.1.gz":       "644 root:root",
		"/usr/share/doc/liqo-agent/third-party.gz":  "644 root:root",
	} {
		if got := r.stat(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	r.run("getent", "passwd", "liqo-agent")
	r.want(false, "presets say no", wants)
	if out, err := r.try("rpm", "--verify", "--nodeps", "liqo-agent"); err != nil {
		t.Errorf("files differ from what the package says: %v %s", err, out)
	}
	if out := r.run("rpm", "--query", "--configfiles", "liqo-agent"); strings.TrimSpace(out) != config {
		t.Errorf("configuration files are %s", out)
	}
	r.run("liqo-agent", "version")

	r.write(config, r.read(config)+"[log]\nlevel = \"debug\"\n", 0o644)
	r.write(secret, "key", 0o600)
	kept := r.read(config)
	r.run("systemctl", "enable", "liqo-agent.service")
	r.rpm("--upgrade", newRPM)
	if out := r.run("rpm", "--query", "liqo-agent"); strings.TrimSpace(out) != "liqo-agent-0.2.0-1.x86_64" {
		t.Errorf("after the upgrade: %s", out)
	}
	if r.read(config) != kept || !strings.HasSuffix(r.read(config+".rpmnew"), newDefault) {
		t.Error("the upgrade did not keep the administrator's configuration and put the new one beside it")
	}
	r.want(true, "upgraded", secret, wants, rpmUnit)
	if out, err := r.try("rpm", "--force-debian", "--nodeps", "--upgrade", oldRPM); err == nil {
		t.Errorf("rpm took the older version for an upgrade: %s", out)
	}

	r.rpm("--erase", "liqo-agent")
	r.want(false, "erased", "/usr/bin/liqo-agent", rpmUnit, wants)
	r.want(true, "erased", config+".rpmsave", secret)
}

// What the .rpm does to the service where systemd runs.
func TestRPMService(t *testing.T) {
	r := newRoot(t)
	r.fakeSystemd()
	for _, step := range []struct {
		what, want string
		args       []string
	}{
		{"installed", "", []string{"--install", oldRPM}},
		{"upgraded", "try-restart", []string{"--upgrade", newRPM}},
		{"erased", "disable stop", []string{"--erase", "liqo-agent"}},
	} {
		r.rpm(step.args...)
		if got := r.asked(); got != step.want {
			t.Errorf("%s: systemctl was asked to %q, want %q", step.what, got, step.want)
		}
	}
}

// unpack returns a file of a .deb or of an .rpm.
func unpack(t *testing.T, pkg, path string) []byte {
	t.Helper()
	in, err := os.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	args := []string{"dpkg-deb", "--fsys-tarfile", pkg}
	if strings.HasSuffix(pkg, ".rpm") {
		args = []string{"rpm2archive", "-n", "-"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	for archive := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", pkg, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimPrefix(h.Name, ".") == path {
			b, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}

// Every package is for the architecture that it says, and the bill of materials in it is that of its own binary.
func TestArchitectures(t *testing.T) {
	dir := built(t).new
	for _, c := range []struct {
		name, deb, rpm string
		machine        elf.Machine
	}{
		{"amd64", "amd64", "x86_64", elf.EM_X86_64},
		{"arm64", "arm64", "aarch64", elf.EM_AARCH64},
		{"armv7", "armhf", "armv7hl", elf.EM_ARM},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			deb, rpm := filepath.Join(dir, "liqo-agent_0.2.0-1_"+c.deb+".deb"), filepath.Join(dir, "liqo-agent-0.2.0-1."+c.rpm+".rpm")
			for _, q := range [][]string{
				{c.deb, "dpkg-deb", "--field", deb, "Architecture"},
				{c.rpm, "rpm", "--query", "--queryformat", "%{ARCH}", "--package", rpm},
				{"0.2.0-1", "rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}", "--package", rpm},
			} {
				out, err := exec.Command(q[1], q[2:]...).Output()
				if strings.TrimSpace(string(out)) != q[0] || err != nil {
					t.Errorf("%v: %s %v, want %s", q[1:], out, err, q[0])
				}
			}
			plain, err := os.ReadFile(filepath.Join(dir, "liqo-agent-linux-"+c.name))
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(plain)
			for _, pkg := range []string{deb, rpm} {
				binary := unpack(t, pkg, "/usr/bin/liqo-agent")
				f, err := elf.NewFile(bytes.NewReader(binary))
				if err != nil || f.Machine != c.machine || !bytes.Equal(binary, plain) {
					t.Errorf("%s: not the binary for %v: %v", pkg, c.machine, err)
				}
				var bom struct {
					Metadata struct {
						Component struct{ Hashes []struct{ Content string } }
					}
					Components []struct{ Name string }
				}
				if err := json.Unmarshal(unpack(t, pkg, "/usr/share/doc/liqo-agent/liqo-agent.cdx.json"), &bom); err != nil {
					t.Fatal(err)
				}
				if bom.Metadata.Component.Hashes[0].Content != hex.EncodeToString(sum[:]) {
					t.Errorf("%s: the bill of materials is of another binary", pkg)
				}
				if c.name == "amd64" && len(bom.Components) < 30 {
					t.Errorf("%s: the bill of materials has %d components", pkg, len(bom.Components))
				}
			}
		})
	}
}
