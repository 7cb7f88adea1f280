package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/service"
)

const (
	agent      = "/usr/local/bin/liqo-agent"
	configFile = "/etc/liqo-agent/liqo-agent.toml"
	// adminConfig is what only root may read, and the agent has to.
	adminConfig = "/etc/rancher/k3s/k3s.yaml"
)

// secrets are files that the agent has no business with.
var secrets = []string{
	"/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key", "/var/lib/etcd/member/snap/db", "/etc/letsencrypt/live/box/privkey.pem",
	"/etc/rancher/node/password", "/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/config.yaml.d/token.yaml", "/etc/rancher/k3s/registries.yaml",
	"/var/lib/rancher/k3s/server/token", "/var/lib/kubelet/pods/x", "/var/lib/containerd/x", "/var/log/pods/x", "/etc/ssh/ssh_host_ed25519_key",
	"/home/alice/.ssh/id_ed25519", "/root/.kube/config", "/root/.ssh/id_ed25519",
}

// TestService goes through the life of a service in one machine: each step begins where the one before ended.
func TestService(t *testing.T) {
	m := newMachine(t)
	m.binary(bed.Binary(t, "liqo-agent"))
	m.links()
	for _, file := range secrets {
		m.write(file, "secret", 0o644)
	}
	// A K3s that never gets as far as to answer.
	m.write("/etc/systemd/system/k3s.service", "[Service]\nType=notify\nTimeoutStartSec=0\nExecStart=/bin/sleep infinity\n", 0o644)
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "start", "--no-block", "k3s")
	for _, step := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"not installed", testNotInstalled},
		{"install", testInstall},
		{"install again", testInstallAgain},
		{"unit", testUnit},
		{"sandbox", testSandbox},
		{"works in the sandbox", testWorks},
		{"journal", testJournal},
		{"reload", testReload},
		{"reload of a bad file", testBadReload},
		{"rebuilding reload", testRebuild},
		{"crash", testCrash},
		{"watchdog", testWatchdog},
		{"goodbye", testGoodbye},
		{"uninstall", testUninstall},
		{"packaged", testPackaged},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			here := *m
			here.t = t
			step.run(t, &here)
		})
		if !ok {
			return
		}
	}
}

// kubeconfig leads to a port that nobody listens on.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: default, user: {token: secret}}]
contexts: [{name: default, context: {cluster: default, user: default}}]
current-context: default
`

// binary puts the agent where people put programs.
func (m *machine) binary(from string) {
	m.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(agent, string(content), 0o755)
}

// far is the other end of the machine's cable. The agent leaves it alone because of its name.
const far = "veth-far"

// links gives the machine a network, though nobody else is on it.
func (m *machine) links() {
	m.t.Helper()
	m.must("ip", "link", "set", "lo", "up")
	m.must("ip", "link", "add", "eth0", "type", "veth", "peer", "name", far)
	m.must("ip", "address", "add", "10.77.0.1/24", "dev", "eth0")
	m.must("ip", "link", "set", "eth0", "up")
	m.must("ip", "link", "set", far, "up")
}

// show asks systemd for a property of the service.
func (m *machine) show(property string) string {
	m.t.Helper()
	return strings.TrimSpace(m.must("systemctl", "show", "--value", "--property="+property, "liqo-agent"))
}

// runs waits until the service is active, with another main process than before, and returns that.
func (m *machine) runs(before string) string {
	m.t.Helper()
	pid := ""
	m.until("the service runs", func() (bool, string) {
		pid = m.show("MainPID")
		state := m.show("ActiveState")
		return state == "active" && pid != "0" && pid != before, state + ", process " + pid
	})
	return pid
}

// status asks the agent.
func (m *machine) status() map[string]any {
	m.t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(m.must(agent, "status", "-o", "json")), &out); err != nil {
		m.t.Fatal(err)
	}
	return out
}

// records are what the journal has of the service.
func (m *machine) records() []map[string]any {
	m.t.Helper()
	m.must("journalctl", "--sync")
	var out []map[string]any
	dec := json.NewDecoder(strings.NewReader(m.must("journalctl", "--no-pager", "-u", "liqo-agent", "-o", "json")))
	for dec.More() {
		var one map[string]any
		if err := dec.Decode(&one); err != nil {
			m.t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

// said returns the records with text in their message.
func (m *machine) said(text string) []map[string]any {
	m.t.Helper()
	return slices.DeleteFunc(m.records(), func(r map[string]any) bool {
		message, _ := r["MESSAGE"].(string)
		return !strings.Contains(message, text)
	})
}

// dropIn sets what a test cannot wait for.
func (m *machine) dropIn(text string) {
	m.t.Helper()
	m.write("/etc/systemd/system/liqo-agent.service.d/test.conf", "[Service]\n"+text+"\n", 0o644)
	m.must("systemctl", "daemon-reload")
}

func expect(t *testing.T, out string, code, wantCode int, want ...string) {
	t.Helper()
	for _, one := range want {
		if !strings.Contains(out, one) {
			t.Errorf("want %q in: %s", one, out)
		}
	}
	if code != wantCode {
		t.Errorf("exit code %d, want %d: %s", code, wantCode, out)
	}
}

func testNotInstalled(t *testing.T, m *machine) {
	for _, args := range [][]string{{"status"}, {"start"}, {"uninstall"}} {
		out, code := m.run(append([]string{agent, "service"}, args...)...)
		expect(t, out, code, 4, "the service is not installed", "try: sudo liqo-agent service install --start")
		if args[0] != "status" {
			continue
		}
	}
	m.write("/tmp/liqo-agent", "", 0o755)
	if out, code := m.run("cp", agent, "/tmp/liqo-agent"); code != 0 {
		t.Fatal(out)
	}
	out, code := m.run("/tmp/liqo-agent", "service", "install")
	expect(t, out, code, 1, "the service does not see what is below /tmp/", "try: sudo install")
	out, code = m.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", agent, "service", "install")
	expect(t, out, code, 1, "only root may change services", "try: sudo liqo-agent service install")
}

func testInstall(t *testing.T, m *machine) {
	out := m.must(agent, "service", "install", "--start")
	expect(t, out, 0, 0, "Created the user and the group liqo-agent.", "Wrote /etc/systemd/system/liqo-agent.service.", "The service is running, and starts at boot.")
	unit, err := os.ReadFile(m.path("/etc/systemd/system/liqo-agent.service"))
	if err != nil || string(unit) != service.Unit(agent) {
		t.Errorf("the unit is not the one there is (%v):\n%s", err, unit)
	}
	if out := strings.TrimSpace(m.must("systemctl", "is-enabled", "liqo-agent")); out != "enabled" {
		t.Errorf("it is %s", out)
	}
	m.runs("0")
	// How it is it says a moment after that it is ready.
	m.until("it says how it is", func() (bool, string) {
		text := m.show("StatusText")
		return strings.Contains(text, "0 peers"), text
	})
	out, code := m.run(agent, "service", "status")
	expect(t, out, code, 0, "The service is running (process "+m.show("MainPID"), "and starts at boot.", "barn: 0 peers")
	var st service.Status
	if err := json.Unmarshal([]byte(m.must(agent, "service", "status", "-o", "json")), &st); err != nil || !st.Running || !st.Enabled || st.Packaged || st.PID == 0 || st.Since.IsZero() {
		t.Errorf("status: %+v, %v", st, err)
	}
	for path, want := range map[string]string{
		"/var/lib/liqo-agent": "liqo-agent:liqo-agent 750", "/run/liqo-agent": "liqo-agent:liqo-agent 755",
		"/run/liqo-agent/agent.sock": "liqo-agent:liqo-agent 660", "/var/lib/liqo-agent/agent.db": "liqo-agent:liqo-agent 640",
		"/var/lib/liqo-agent/agent.db-wal": "liqo-agent:liqo-agent 640", "/var/lib/liqo-agent/cluster.key": "liqo-agent:liqo-agent 600",
		"/etc/liqo-agent": "root:root 755",
	} {
		if got := strings.TrimSpace(m.must("stat", "-c", "%U:%G %a", path)); got != want {
			t.Errorf("%s is of %s, want %s", path, got, want)
		}
	}
}

func testInstallAgain(t *testing.T, m *machine) {
	pid := m.show("MainPID")
	out := m.must(agent, "service", "install")
	expect(t, out, 0, 0, "is up to date")
	m.write("/etc/systemd/system/liqo-agent.service", "# of another version\n"+service.Unit(agent), 0o644)
	out = m.must(agent, "service", "install")
	expect(t, out, 0, 0, "Replaced /etc/systemd/system/liqo-agent.service; the old unit is /etc/systemd/system/liqo-agent.service.old.")
	if now := m.show("MainPID"); now != pid {
		t.Errorf("process %s, was %s", now, pid)
	}
}

// testUnit has systemd's own word about the unit: apart from the two that only newer ones know, nothing is to be said.
func testUnit(t *testing.T, m *machine) {
	out, code := m.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/liqo-agent.service")
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "Unknown key 'RestartSteps'") && !strings.Contains(line, "Unknown key 'RestartMaxDelaySec'") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if code != 0 {
		t.Errorf("systemd-analyze verify: exit code %d", code)
	}
}

// tunDevice makes network devices; not every machine has it.
const tunDevice = "net/tun"

// testSandbox looks at what the process may do.
func testSandbox(t *testing.T, m *machine) {
	pid := m.show("MainPID")
	status, err := os.ReadFile(m.path("/proc/" + pid + "/status"))
	if err != nil {
		t.Fatal(err)
	}
	// CAP_DAC_READ_SEARCH is 2, CAP_NET_ADMIN 12 (capabilities(7)).
	for _, want := range []string{"CapEff:\t0000000000001004", "CapPrm:\t0000000000001004", "CapBnd:\t0000000000001004", "CapAmb:\t0000000000001004",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("want %q in:\n%s", want, status)
		}
	}
	// What its mounts let root see is the most that it can see.
	inside := func(file string) string { return m.path("/proc/" + pid + "/root" + file) }
	for _, file := range []string{"/etc/shadow", "/etc/gshadow"} {
		if text, err := os.ReadFile(inside(file)); err != nil || len(text) > 0 {
			t.Errorf("%s can be read: %d bytes, %v", file, len(text), err)
		}
	}
	for _, file := range secrets {
		if text, err := os.ReadFile(inside(file)); err == nil && len(text) > 0 {
			t.Errorf("%s can be read: %s", file, text)
		}
	}
	for _, dir := range []string{"/root", "/home", "/etc/ssl/private", "/var/backups", "/tmp"} {
		if entries, err := os.ReadDir(inside(dir)); err != nil || len(entries) > 0 {
			t.Errorf("%s can be seen: %v, %v", dir, entries, err)
		}
	}
	for _, dir := range []string{"/", "/etc", "/usr", "/var/lib", "/run", "/dev", "/dev/shm", "/etc/liqo-agent", "/sys/fs/cgroup"} {
		if err := os.WriteFile(filepath.Join(inside(dir), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s can be written: %v", dir, err)
		}
	}
	for _, dir := range []string{"/var/lib/liqo-agent", "/run/liqo-agent"} {
		file := filepath.Join(inside(dir), "x")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Remove(file)); err != nil {
			t.Errorf("%s cannot be written: %v", dir, err)
		}
	}
	_, here := os.Stat(m.path("/dev/" + tunDevice))
	if _, err := os.Stat(inside("/dev/" + tunDevice)); here == nil && err != nil {
		t.Errorf("the device for the network between clusters is hidden: %v", err)
	}
	out, code := m.run("nsenter", "--target", pid, "--mount", "--", "/bin/true")
	expect(t, out, code, 126, "Permission denied")
	limits, err := os.ReadFile(m.path("/proc/" + pid + "/limits"))
	if err != nil || !strings.Contains(string(limits), "Max open files            16384                16384") || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("limits (%v):\n%s", err, limits)
	}
}

// testWorks looks at whether the agent can do its work there: netlink, multicast, SQLite, and files of root.
func testWorks(t *testing.T, m *machine) {
	m.until("it announces itself, and knows its links", func() (bool, string) {
		st := m.status()
		advertisement, _ := st["advertisement"].(map[string]any)
		links := fmt.Sprint(st["links"])
		return advertisement["established"] == true && strings.Contains(links, "10.77.0.1/24"), fmt.Sprint(advertisement, links)
	})
	st := m.status()
	if state, _ := st["state"].(map[string]any); state["volatile"] != false {
		t.Errorf("state: %v", state)
	}
	m.write(adminConfig, kubeconfig, 0o600)
	m.until("it has read the kubeconfig that is root's alone", func() (bool, string) {
		kubernetes, _ := m.status()["kubernetes"].(map[string]any)
		said := fmt.Sprint(kubernetes)
		return kubernetes["kubeconfig"] == adminConfig && strings.Contains(said, "connection refused"), said
	})
	for _, r := range m.records() {
		if message := fmt.Sprint(r["MESSAGE"]); strings.Contains(message, "not permitted") || strings.Contains(message, "ermission denied") {
			t.Errorf("something is forbidden: %s", message)
		}
	}
	// The receive buffer has the size that was asked for, of which the kernel doubles the number, also where
	// net.core.rmem_max grants less to everybody.
	out := m.must("ss", "-uamnH", "sport = :5353")
	_, after, ok := strings.Cut(out, ",rb")
	size, _ := strconv.Atoi(strings.SplitN(after, ",", 2)[0])
	if !ok || size < 2*mdnssvc.DefaultReceiveBuffer {
		t.Errorf("receive buffer %d: %s", size, out)
	}
}

// testJournal looks at levels, and at what the journal knows by itself.
func testJournal(t *testing.T, m *machine) {
	up := m.said("liqo-agent is up")
	if len(up) != 1 || up[0]["PRIORITY"] != "6" || up[0]["SYSLOG_IDENTIFIER"] != "liqo-agent" {
		t.Fatalf("records: %v", up)
	}
	message := fmt.Sprint(up[0]["MESSAGE"])
	if !strings.HasPrefix(message, `msg="liqo-agent is up" cluster=barn`) || strings.Contains(message, "time=") || strings.Contains(message, "level=") {
		t.Errorf("message: %s", message)
	}
}

func testReload(t *testing.T, m *machine) {
	pid := m.show("MainPID")
	m.write(configFile, "[log]\nlevel = \"debug\"\n[endpoint]\nmax_connections = 128\n", 0o644)
	m.must("systemctl", "reload", "liqo-agent")
	if level := strings.TrimSpace(m.must(agent, "log", "level")); level != "debug" {
		t.Errorf("level %s right after the reload", level)
	}
	out := m.must(agent, "config", "reload")
	expect(t, out, 0, 0, "Needs a restart of the agent: endpoint.max_connections")
	m.write(configFile, "[log]\nlevel = \"info\"\n", 0o644)
	var done struct{ Changed, Restart []string }
	if err := json.Unmarshal([]byte(m.must(agent, "config", "reload", "-o", "json")), &done); err != nil ||
		!slices.Equal(done.Changed, []string{"endpoint.max_connections", "log.level"}) || len(done.Restart) != 0 {
		t.Errorf("reload: %+v, %v", done, err)
	}
	out = m.must(agent, "config", "reload")
	expect(t, out, 0, 0, "No changes.")
	if now := m.show("MainPID"); now != pid {
		t.Errorf("process %s, was %s", now, pid)
	}
}

func testBadReload(t *testing.T, m *machine) {
	m.write(configFile, "[log]\nlevel = \"loud\"\n[discovery]\nttl = \"never\"\n", 0o644)
	out, code := m.run("systemctl", "reload", "liqo-agent")
	if code == 0 {
		t.Errorf("systemctl reload: %s", out)
	}
	out, code = m.run(agent, "config", "reload")
	expect(t, out, code, 1, "the old settings stay in use", "log.level", "discovery.ttl", "try: fix the file")
	if state := m.show("ActiveState"); state != "active" {
		t.Errorf("the service is %s", state)
	}
	if level := strings.TrimSpace(m.must(agent, "log", "level")); !strings.HasSuffix(level, "info") {
		t.Errorf("level %s", level)
	}
	m.until("the journal has it as an error", func() (bool, string) {
		said := m.said("the configuration on disk has errors")
		return len(said) > 0 && said[0]["PRIORITY"] == "3", fmt.Sprint(said)
	})
	m.until("the status shows the problem", func() (bool, string) {
		text := m.show("StatusText")
		return strings.Contains(text, "the configuration on disk has errors"), text
	})
	m.write(configFile, "", 0o644)
	m.must("systemctl", "reload", "liqo-agent")
}

// testRebuild changes what the parts have to be made anew for.
func testRebuild(t *testing.T, m *machine) {
	pid := m.show("MainPID")
	m.write(configFile, "[discovery]\nservice = \"_other._tcp\"\n", 0o644)
	out := m.must(agent, "config", "reload")
	expect(t, out, 0, 0, "Changed, and in effect: discovery.service")
	if discovery, _ := m.status()["discovery"].(map[string]any); discovery["service"] != "_other._tcp" {
		t.Errorf("discovery: %v", discovery)
	}
	m.until("it is back from reloading", func() (bool, string) {
		state := m.show("ActiveState")
		return state == "active", state
	})
	m.write(configFile, "", 0o644)
	m.must("systemctl", "reload", "liqo-agent")
	if now := m.show("MainPID"); now != pid {
		t.Errorf("process %s, was %s", now, pid)
	}
}

func testCrash(t *testing.T, m *machine) {
	m.dropIn("RestartSec=100ms")
	pid := m.show("MainPID")
	m.must("kill", "-KILL", pid)
	m.runs(pid)
	if n := m.show("NRestarts"); n != "1" {
		t.Errorf("%s restarts", n)
	}
	out, code := m.run(agent, "service", "status")
	expect(t, out, code, 0, "systemd had to start it again once.")
}

// testWatchdog looks at whether an agent that works is left alone, and one that hangs is not.
func testWatchdog(t *testing.T, m *machine) {
	m.dropIn("RestartSec=100ms\nWatchdogSec=20s\nTimeoutAbortSec=1min")
	m.must("systemctl", "restart", "liqo-agent")
	pid := m.runs("0")
	seen := make(map[string]bool)
	m.until("it gives signs of life", func() (bool, string) {
		seen[m.show("WatchdogTimestampMonotonic")] = true
		return len(seen) > 2, fmt.Sprint(seen)
	})
	if now := m.show("MainPID"); now != pid {
		t.Fatalf("process %s, was %s: it was taken for hung", now, pid)
	}
	m.must("kill", "-STOP", pid)
	m.runs(pid)
	m.must("journalctl", "--sync")
	journal := m.must("journalctl", "--no-pager", "-u", "liqo-agent")
	for _, want := range []string{"Watchdog timeout", "SIGABRT: abort", "goroutine "} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal does not have %q", want)
		}
	}
}

// testGoodbye stops the service, and looks at what its neighbours hear.
func testGoodbye(t *testing.T, m *machine) {
	m.until("it announces itself", func() (bool, string) {
		advertisement, _ := m.status()["advertisement"].(map[string]any)
		return advertisement["established"] == true, fmt.Sprint(advertisement)
	})
	heard := m.listen(far)
	out := m.must(agent, "service", "stop")
	expect(t, out, 0, 0, "The service is stopped.")
	m.until("a goodbye is heard", func() (bool, string) { return heard(), "" })
	if result, state := m.show("Result"), m.show("ActiveState"); result != "success" || state != "inactive" {
		t.Errorf("result %s, state %s", result, state)
	}
	if said := m.said("liqo-agent has stopped"); len(said) == 0 {
		t.Error("it did not stop by itself")
	}
	out, code := m.run(agent, "service", "status")
	expect(t, out, code, 3, "the service is not running, and starts at boot")
	if code := exec.Command("stat", m.path("/run/liqo-agent")).Run(); code == nil {
		t.Error("/run/liqo-agent is still there")
	}
	m.must(agent, "service", "restart")
	m.runs("0")
}

func testUninstall(t *testing.T, m *machine) {
	out := m.must(agent, "service", "uninstall")
	expect(t, out, 0, 0, "Removed the service.", "/var/lib/liqo-agent")
	left, err := filepath.Glob(m.path("/etc/systemd/system/*/liqo-agent.service"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(m.path("/etc/systemd/system/liqo-agent.service")); !os.IsNotExist(err) {
		t.Errorf("the unit: %v", err)
	}
	if database, err := os.ReadFile(m.path("/var/lib/liqo-agent/agent.db")); err != nil || !bytes.HasPrefix(database, []byte("SQLite format 3")) {
		t.Errorf("the state is gone: %v", err)
	}
	m.must("id", "liqo-agent")
}

func testPackaged(t *testing.T, m *machine) {
	m.write("/lib/systemd/system/liqo-agent.service", service.Unit(service.PackagedPath), 0o644)
	m.must("systemctl", "daemon-reload")
	for command, want := range map[string]string{"install": "a package has installed the service already", "uninstall": "the service came with a package"} {
		out, code := m.run(agent, "service", command)
		expect(t, out, code, 1, want)
	}
}
