package packagetest

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	installer = "/mnt/new/install.sh"
	installed = "/usr/local/bin/liqo-agent"
	adminUnit = "/etc/systemd/system/liqo-agent.service"
)

// install.sh from a folder, where systemd runs: install, update, uninstall, purge.
func TestInstallScript(t *testing.T) {
	r := newRoot(t)
	r.fakeSystemd()
	out := r.run("sh", installer)
	if !strings.Contains(out, "installed "+installed+": liqo-agent ") || !strings.Contains(out, "peers connect") {
		t.Errorf("it said\n%s", out)
	}
	if got := r.stat(installed); got != "755 root:root" {
		t.Errorf("the binary is %s", got)
	}
	if unit := r.read(adminUnit); !strings.Contains(unit, "ExecStart="+installed+" run") {
		t.Errorf("the unit does not run the binary:\n%s", unit)
	}
	r.run("getent", "passwd", "liqo-agent")
	r.want(true, "installed", wants)
	r.run("sh", installer) // an update
	if got := r.asked(); !strings.HasSuffix(got, "try-restart") {
		t.Errorf("an update asks systemctl to %q", got)
	}
	r.want(false, "updated", installed+".new")

	r.write(secret, "key", 0o600)
	r.write(config, "", 0o644)
	r.write(kubeconfig, "token", 0o600)
	r.run("sh", installer, "--uninstall")
	r.want(false, "uninstalled", installed, adminUnit, wants)
	r.want(true, "uninstalled", secret, config, kubeconfig)
	r.run("sh", installer, "--purge")
	r.want(false, "purged", "/var/lib/liqo-agent", "/etc/liqo-agent")
	r.run("sh", installer, "--purge")
}

// What install.sh refuses, and that nothing is there afterwards.
func TestInstallScriptRefuses(t *testing.T) {
	r := newRoot(t)
	server := serve(t, r)
	r.run("cp", "-r", "/mnt/new", "/tmp/broken")
	r.run("sh", "-c", "echo >>/tmp/broken/liqo-agent-linux-amd64")
	sum, _, _ := strings.Cut(r.run("sha256sum", "/tmp/broken/liqo-agent-linux-amd64"), " ")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a changed binary":          {[]string{"--from", "/tmp/broken"}, "does not have the checksum"},
		"another checksum":          {[]string{"--from", "/mnt/new", "--sha256", sum}, "does not have the checksum"},
		"a folder without binaries": {[]string{"--from", "/etc"}, "there is no /etc/liqo-agent-linux-amd64"},
		"an unprotected URL":        {[]string{"--from", server}, "say --sha256"},
		"a URL with nothing there":  {[]string{"--from", server + "/nothing", "--sha256", sum}, "cannot fetch"},
		"an unknown option":         {[]string{"--form", "/mnt/new"}, "there is no option --form"},
	} {
		out, err := r.try(append([]string{"sh", installer}, c.args...)...)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, it said\n%s", name, err, out)
		}
	}
	r.want(false, "refused", installed, adminUnit, installed+".new")

	// On a machine for which there is no build.
	r.write("/usr/local/bin/uname", "#!/bin/sh\n[ \"$1\" = -m ] && echo riscv64 || echo Linux\n", 0o755)
	if out, err := r.try("sh", installer); err == nil || !strings.Contains(out, "no build for riscv64") {
		t.Errorf("riscv64: %v\n%s", err, out)
	}
	if err := os.Remove(r.at("/usr/local/bin/uname")); err != nil {
		t.Fatal(err)
	}

	// From a URL, without systemd.
	binary, _, _ := strings.Cut(r.run("sha256sum", "/mnt/new/liqo-agent-linux-amd64"), " ")
	if out := r.run("sh", installer, "--from", server+"/", "--sha256", binary); !strings.Contains(out, "systemd does not run here") {
		t.Errorf("it said\n%s", out)
	}
	r.want(true, "installed", installed)
	r.run("sh", installer, "--purge")
	r.want(false, "purged", installed)

	// Beside a package.
	r.dpkg("--install", oldDeb)
	for _, args := range [][]string{{installer}, {installer, "--purge"}} {
		if out, err := r.try(append([]string{"sh"}, args...)...); err == nil || !strings.Contains(out, "package") {
			t.Errorf("beside a package: %v\n%s", err, out)
		}
	}
}

// serve offers the newer packages by HTTP on the loopback of the test's namespaces.
func serve(t *testing.T, r *root) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(r.at("/mnt/new")))}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return "http://" + listener.Addr().String()
}

// The folder that packaging/Dockerfile makes, as the only one that the agent sees: no shell, no libraries, no /etc.
func TestImage(t *testing.T) {
	r := newRoot(t)
	image, err := os.MkdirTemp("/dev/shm", "image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(image); err != nil {
			t.Error(err)
		}
	})
	dockerfile, err := os.ReadFile(filepath.Join(repository, "packaging/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]string{} // of each instruction that is there once
	copied := 0
	for line := range strings.Lines(string(dockerfile)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		words[fields[0]] = fields[1:]
		if fields[0] != "COPY" {
			continue
		}
		copied++
		from, to := fields[len(fields)-2], filepath.Join(image, fields[len(fields)-1])
		from = strings.NewReplacer("${TARGETARCH}", "amd64", "${TARGETVARIANT}", "").Replace(from)
		b, err := os.ReadFile(r.at(filepath.Join("/mnt/new", from)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		// A child that is forked meanwhile by another test would hold the program open for writing
		// until it runs its own, and a program that is open for writing cannot be run.
		syscall.ForkLock.RLock()
		err = os.WriteFile(to, b, 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	if copied != 2 || words["FROM"][0] != "scratch" || words["ENTRYPOINT"][0] != `["liqo-agent"]` || words["CMD"][0] != `["run"]` {
		t.Fatalf("this test no longer reads the Dockerfile: %v", words)
	}
	start := func(args ...string) ([]byte, error) {
		cmd := execAgent(t, image, args...)
		return cmd.CombinedOutput()
	}
	if out, err := start("version"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// Until it is told to stop, as docker run and docker stop do.
	cmd := execAgent(t, image, "run", "--set", "cluster.kubeconfig=none", "--set", "discovery.interfaces=[\"none\"]")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	health := waitFor(t, func() (string, bool) {
		out, err := start("status")
		return string(out), err == nil
	})
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, log.String())
	}
	if !strings.Contains(health, "Fingerprint") {
		t.Errorf("the health check said %s\nand the log\n%s", health, log.String())
	}
	for _, path := range []string{"/var/lib/liqo-agent/agent.db"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(image, path), &st); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
