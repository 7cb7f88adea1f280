//go:build linux

package integration

import (
	"errors"
	"os"
	"strings"
	"testing"

	"liqo.io/agent/doctor"
	"liqo.io/agent/internal/bed"
)

// unheard waits for the time when a peer is seen, but not on the LAN.
func unheard(x *box, id string) error {
	out, err := x.run("peers", "show", id, "-o", "json")
	if err != nil {
		return err
	}
	if strings.Contains(out, `"LAN"`) || !strings.Contains(out, `"phase": "Present"`) {
		return errors.New("it is " + out)
	}
	return nil
}

// heardAs waits until somebody at an address answers a scan.
func heardAs(x *box, addr string) error {
	out, err := x.run("scan", "--timeout", "1s", "-o", "json", "--no-verify")
	if err == nil && !strings.Contains(out, addr) {
		err = errors.New("nobody answers there")
	}
	return err
}

func TestDisk(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet)
	x.shell("mkdir", "-m", "0750", "-p", stateDir)
	x.shell("mount", "-t", "tmpfs", "-o", "size=100m,mode=0750", "tmpfs", stateDir)
	x.start()
	r := x.finds()
	says(t, r, "disk", "writing a small file to")

	x.shell("sh", "-c", "cat /dev/zero > "+stateDir+"/big 2>/dev/null || true")
	x.finds("disk-full")

	x.shell("rm", stateDir+"/big")
	x.stop()
	x.shell("mount", "-o", "remount,ro", stateDir)
	x.finds("agent-stopped", "disk-read-only")
	x.shell("mount", "-o", "remount,rw,nr_inodes=20", stateDir)
	x.shell("sh", "-c", "for i in $(seq 30); do touch "+stateDir+"/$i 2>/dev/null || break; done")
	x.finds("agent-stopped", "disk-full")
}

func TestModes(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet).start()
	x.shell("chmod", "0644", stateDir+"/cluster.key")
	x.finds("key-exposed")
	x.shell("chmod", "0600", stateDir+"/cluster.key")
	x.shell("chmod", "0777", stateDir)
	x.finds("state-exposed")
}

func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("the bed makes this root of its namespace")
	}
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet).start()
	// The socket is for root and the group alone, as is the state.
	r := x.report("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
	expect(t, r)
	skipped := 0
	for _, c := range r.Checks {
		if c.Status == doctor.Skipped {
			skipped++
		}
	}
	if skipped < 5 {
		t.Errorf("%d checks were skipped: %+v", skipped, r)
	}
	says(t, r, "agent", "this user may not connect to the agent")
	says(t, r, "state", "use sudo")
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet).start()
	x.host.WriteFile(configPath, quiet+"[trust]\nallow_empty_token = true\n")
	x.finds("open-to-anybody", "restart-needed")
	x.host.WriteFile(configPath, "[trust]\nallow_emty_token = true\n")
	x.finds("config-bad")
}
