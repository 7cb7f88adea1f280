//go:build linux

package bed

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// nestedEnv makes TestNestedBed do something: it names a way to end.
const nestedEnv = "LIQO_BED_NESTED"

// TestNestedBed is what TestNothingIsLeftBehind runs in a bed of its own.
func TestNestedBed(t *testing.T) {
	end := os.Getenv(nestedEnv)
	if end == "" {
		return
	}
	b := New(t)
	a := b.AddHost("a", "10.77.0.1/24")
	b.AddHost("c", "10.77.0.2/24")
	p := a.Start(Cmd{Args: []string{"sh", "-c", "setsid sleep 1000 & echo up; wait"}})
	if err := p.WaitLog(within(t, 5*time.Minute), "up"); err != nil {
		t.Fatal(err)
	}
	pid, err := a.MachinePID()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("nested bed is up, host a is process %d\n", pid)
	switch end {
	case "return":
	case "fail":
		t.Fatal("as wanted")
	case "panic":
		panic("as wanted")
	default: // wait to be ended by a signal
		<-p.Done()
	}
}

// TestNothingIsLeftBehind runs a bed inside of this one, which is a machine whose processes, mounts
// and interfaces are all known, and lets it end in every way there is.
func TestNothingIsLeftBehind(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"return", "fail", "panic", "terminated", "killed"} {
		t.Run(end, func(t *testing.T) {
			before := leftovers(t)
			var out lockedBuffer
			cmd := exec.Command(self, "-test.run=^TestNestedBed$", "-test.v")
			cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, insideEnv+"=") }), nestedEnv+"="+end)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ctx := within(t, 5*time.Minute)
			var pid int
			if err := Poll(ctx, func() error {
				_, line, _ := strings.Cut(out.String(), "nested bed is up, ")
				if _, err := fmt.Sscanf(line, "host a is process %d\n", &pid); err != nil {
					return fmt.Errorf("the nested bed does not come up: %w: %s", err, out.String())
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			// It may have ended already where it ends by itself.
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(name) != "sleep\n" {
				t.Errorf("process %d, said to be on host a, is %s", pid, name)
			} else if err != nil && (end == "terminated" || end == "killed") {
				t.Errorf("host a: %v", err)
			}
			switch end {
			case "terminated":
				err = cmd.Process.Signal(os.Interrupt)
			case "killed":
				err = cmd.Process.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); (err == nil) != (end == "return") {
				t.Errorf("ended with %v: %s", err, out.String())
			}
			if err := Poll(ctx, func() error {
				if after := leftovers(t); !slices.Equal(before, after) {
					return fmt.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// leftovers lists the processes, namespaces, mounts, interfaces and files of the machine that this bed
// is.
func leftovers(t *testing.T) []string {
	t.Helper()
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		status, err := os.ReadFile(p + "/status")
		if err != nil || bytes.Contains(status, []byte("State:\tZ")) {
			continue // it has ended
		}
		add("process %s", p)
		for _, kind := range []string{"net", "mnt", "pid"} {
			ns, err := os.Readlink(p + "/ns/" + kind)
			add("namespace %s %v", ns, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	add("mounts\n%s", mounts)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		add("interface %s %s", l.Name, l.Flags)
	}
	files, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		add("file %s", f.Name())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
