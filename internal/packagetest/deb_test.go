package packagetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oldDeb  = "/mnt/old/liqo-agent_0.1.0-1_amd64.deb"
	newDeb  = "/mnt/new/liqo-agent_0.2.0-1_amd64.deb"
	config  = "/etc/liqo-agent/liqo-agent.toml"
	wants   = "/etc/systemd/system/multi-user.target.wants/liqo-agent.service"
	debUnit = "/lib/systemd/system/liqo-agent.service"
	// secret is a file of the agent, and kubeconfig what rbac --apply writes.
	secret     = "/var/lib/liqo-agent/cluster.key"
	kubeconfig = "/etc/liqo-agent/kubeconfig"
)

// dpkg installs packages as apt does without anybody to ask: a changed configuration stays.
func (r *root) dpkg(args ...string) string {
	r.t.Helper()
	return r.run(append([]string{"dpkg", "--force-unsafe-io", "--force-confdef", "--force-confold"}, args...)...)
}

// The whole life of the .deb where no systemd runs, as in a chroot in which an image is made.
func TestDebian(t *testing.T) {
	r := newRoot(t)
	r.dpkg("--install", oldDeb)

	modes := map[string]string{
		"/usr/bin/liqo-agent":        "755 root:root",
		debUnit:                      "644 root:root",
		"/etc/liqo-agent":            "755 root:root",
		config:                       "644 root:root",
		"/var/lib/liqo-agent":        "750 liqo-agent:liqo-agent",
		"/usr/share/doc/liqo-agent":  "755 root:root",
		"/usr/share/bash-completion": "755 root:root",
	}
	for _, path := range []string{
		"/usr/lib/sysusers.d/liqo-agent.conf", "/usr/lib/tmpfiles.d/liqo-agent.conf",
		"/usr/share/bash-completion/completions/liqo-agent", "/usr/share/zsh/vendor-completions/_liqo-agent",
		"/usr/share/fish/vendor_completions.d/liqo-agent.fish", "/usr/share/man/man1/liqo-agent.1.gz", "/usr/share/man/man5/liqo-agent.toml.5.gz",
		"/usr/share/doc/liqo-agent/copyright", "/usr/share/doc/liqo-agent/changelog.Debian.gz", "/usr/share/doc/liqo-agent/changelog.gz",
		"/usr/share/doc/liqo-agent/README.md", "/usr/share/doc/liqo-agent/liqo-agent.cdx.json", "/usr/share/doc/liqo-agent/third-party.gz",
		"/usr/share/doc/liqo-agent/monitoring/alerts.yaml", "/usr/share/doc/liqo-agent/monitoring/dashboard.json",
	} {
		modes[path] = "644 root:root"
	}
	for path, want := range modes {
		if got := r.stat(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	account := strings.Split(strings.TrimSpace(r.run("getent", "passwd", "liqo-agent")), ":")
	if account[5] != "/var/lib/liqo-agent" || account[6] != "/usr/sbin/nologin" {
		t.Errorf("the user is %v", account)
	}
	r.want(true, "enabled without systemd", wants)
	if out := r.run("dpkg", "--verify", "liqo-agent"); out != "" {
		t.Errorf("files differ from what the package says: %s", out)
	}
	if out := r.run("liqo-agent", "version"); !strings.HasPrefix(out, "liqo-agent ") {
		t.Errorf("version says %q", out)
	}
	if out, err := r.try("systemd-analyze", "verify", debUnit); err != nil || strings.Contains(out, "liqo-agent.service: ") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	r.run("bash", "-n", "/usr/share/bash-completion/completions/liqo-agent")
	r.run("gzip", "--test", "/usr/share/doc/liqo-agent/third-party.gz", "/usr/share/doc/liqo-agent/changelog.Debian.gz")
	if out := r.run("sh", "-c", "zcat /usr/share/man/man1/liqo-agent.1.gz"); !strings.Contains(out, ".TH ") {
		t.Errorf("the manual page begins %.100q", out)
	}
	if out := r.run("systemd-sysusers", "--dry-run", "liqo-agent.conf"); strings.Contains(out, "reating") {
		t.Errorf("the user is not as sysusers.d has it: %s", out)
	}

	// An upgrade keeps what is the administrator's and the agent's.
	r.write(config, r.read(config)+"[log]\nlevel = \"debug\"\n", 0o644)
	r.write(secret, "key", 0o600)
	r.run("chown", "liqo-agent:liqo-agent", secret)
	r.write(kubeconfig, "token", 0o600)
	kept := r.read(config)
	r.dpkg("--install", newDeb)
	if got := strings.TrimSpace(r.run("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "liqo-agent")); got != "0.2.0-1 installed" {
		t.Errorf("after the upgrade: %s", got)
	}
	if r.read(config) != kept {
		t.Error("the upgrade changed the administrator's configuration")
	}
	if !strings.HasSuffix(r.read(config+".dpkg-dist"), newDefault) {
		t.Error("the new default configuration is not beside the changed one")
	}
	r.want(true, "upgraded", secret, kubeconfig, wants)
	if got := r.stat(secret); got != "600 liqo-agent:liqo-agent" {
		t.Errorf("the key is %s", got)
	}

	// Removed, it can come back as the same cluster.
	r.dpkg("--remove", "liqo-agent")
	r.want(false, "removed", "/usr/bin/liqo-agent", debUnit, "/usr/share/man/man1/liqo-agent.1.gz", "/usr/share/doc/liqo-agent")
	r.want(true, "removed", config, secret, kubeconfig)
	r.dpkg("--install", newDeb)
	r.want(true, "installed again", "/usr/bin/liqo-agent", secret, kubeconfig, wants)
	if r.read(config) != kept {
		t.Error("removal and installation changed the administrator's configuration")
	}

	// Purged, it is gone; what others put into its folder is not, nor is the user.
	r.write("/etc/liqo-agent/fleet-ca.pem", "theirs", 0o644)
	r.dpkg("--purge", "liqo-agent")
	r.want(false, "purged", config, config+".dpkg-dist", kubeconfig, "/var/lib/liqo-agent", wants, debUnit, "/run/liqo-agent.reinstalled")
	r.want(true, "purged", "/etc/liqo-agent/fleet-ca.pem")
	r.run("getent", "passwd", "liqo-agent")
	if out, err := r.try("dpkg-query", "-W", "liqo-agent"); err == nil {
		t.Errorf("dpkg still knows %s", out)
	}

	// Purged at once, without a removal first, it leaves nothing at all.
	if err := os.Remove(r.at("/etc/liqo-agent/fleet-ca.pem")); err != nil {
		t.Fatal(err)
	}
	r.dpkg("--install", oldDeb)
	// A configuration that nobody changed follows the default.
	r.dpkg("--install", newDeb)
	if !strings.HasSuffix(r.read(config), newDefault) {
		t.Error("the untouched configuration is not the new default")
	}
	r.want(false, "untouched", config+".dpkg-dist", config+".dpkg-old")
	r.dpkg("--purge", "liqo-agent")
	r.want(false, "purged", "/etc/liqo-agent", "/var/lib/liqo-agent", wants)
}

// What the .deb does to the service where systemd runs.
func TestDebianService(t *testing.T) {
	r := newRoot(t)
	r.fakeSystemd()
	step := func(what, want string, args ...string) {
		t.Helper()
		r.dpkg(args...)
		if got := r.asked(); got != want {
			t.Errorf("%s: systemctl was asked to %q, want %q", what, got, want)
		}
	}
	step("installed", "start", "--install", oldDeb)
	r.want(true, "installed", wants, "/run/active")
	step("upgraded", "try-restart", "--install", newDeb)
	step("removed", "stop", "--remove", "liqo-agent")
	step("installed again", "start", "--install", newDeb)

	// What the administrator wants goes first.
	r.run("systemctl", "disable", "liqo-agent.service")
	r.run("systemctl", "stop", "liqo-agent.service")
	r.asked()
	step("upgraded while stopped and disabled", "try-restart", "--install", oldDeb)
	r.want(false, "disabled", wants)
	step("purged", "stop", "--purge", "liqo-agent")

	r.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
	step("installed where services must not start", "", "--install", newDeb)
	r.want(true, "enabled where services must not start", wants)
	step("purged there", "", "--purge", "liqo-agent")

	// A service that does not come up is no reason for a broken package.
	if err := os.Remove(r.at("/usr/sbin/policy-rc.d")); err != nil {
		t.Fatal(err)
	}
	r.write("/usr/bin/systemctl", "#!/bin/sh\nexit 1\n", 0o755)
	r.dpkg("--install", newDeb)
	r.dpkg("--purge", "liqo-agent")
}

// A small image without systemd and the helpers of Debian.
func TestDebianWithoutSystemd(t *testing.T) {
	r := newRoot(t)
	for _, name := range []string{"systemctl", "systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper", "deb-systemd-invoke"} {
		if err := os.Remove(r.at(filepath.Join("/usr/bin", name))); err != nil {
			t.Fatal(err)
		}
	}
	r.dpkg("--install", oldDeb)
	account := strings.Split(strings.TrimSpace(r.run("getent", "passwd", "liqo-agent")), ":")
	if account[5] != "/var/lib/liqo-agent" || account[6] != "/usr/sbin/nologin" {
		t.Errorf("the user is %v", account)
	}
	if got := r.stat("/var/lib/liqo-agent"); got != "750 liqo-agent:liqo-agent" {
		t.Errorf("the state directory is %s", got)
	}
	r.dpkg("--install", newDeb)
	r.dpkg("--purge", "liqo-agent")
	r.want(false, "purged", "/var/lib/liqo-agent", "/etc/liqo-agent", "/usr/bin/liqo-agent")
}
