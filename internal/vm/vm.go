//go:build linux

package vm

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	qemu    = "qemu-system-x86_64"
	busybox = "/bin/busybox"
	// patience bounds a machine that hangs. Without hardware that helps, everything takes ten times as long in it.
	patience = 8 * time.Minute
	// verdict is the beginning of the last line that a machine prints; the exit code follows.
	verdict = "the tests in the virtual machine have ended with "
)

// Config is what a machine has.
type Config struct {
	// Modules are those of the kernel that are loaded, with all on which they depend.
	Modules []string
	// Megabytes of memory.
	Memory int
}

// processor is one without AVX: programs and kernels that find it do with it what QEMU takes longer to imitate than what they do without.
const processor = "Nehalem"

// atAnyPace has the kernel neither measure nor check its clocks while it starts: on a busy machine, it found that its timer does not
// work, and stopped, or took the cycle counter for one that runs four times as fast, and so all seconds were short.
const atAnyPace = "no_timer_check tsc=unstable clocksource=hpet"

// Run runs the tests of this program whose names match pattern in a machine, and fails as they do. It skips the test, and
// says why, where there is no QEMU or no kernel for it.
func Run(t *testing.T, pattern string, c Config) {
	t.Helper()
	kernel, tree := requirements(t)
	modules, err := collect(tree, c.Modules)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "initramfs")
	if err := write(image, self, modules, []string{"-test.run=" + pattern, "-test.v=" + fmt.Sprint(testing.Verbose()), "-test.timeout=" + patience.String()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-nic", "none",
		"-m", fmt.Sprint(max(c.Memory, 512)), "-smp", "1", "-accel", "tcg,thread=single", "-cpu", processor,
		"-kernel", kernel, "-initrd", image, "-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off " + atAnyPace,
	}
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death of which thread counts
	defer runtime.UnlockOSThread()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var code string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		if _, after, ok := strings.Cut(line, verdict); ok {
			code = after
			continue
		}
		t.Log(line)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", qemu, errors.Join(err, context.Cause(ctx)))
	}
	if code != "0" {
		t.Fatalf("the tests in the virtual machine have failed, or it has crashed (%q)", code)
	}
}

// requirements returns the kernel and the directory of its modules.
func requirements(t *testing.T) (kernel, modules string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the kernel is one for amd64")
	}
	if _, err := exec.LookPath(qemu); err != nil {
		t.Skip("no virtual machines here: hack/vm.sh installs QEMU:", err)
	}
	root, err := directory()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) == 0 {
		t.Skip("there is no kernel for a virtual machine: hack/vm.sh fetches it")
	}
	if static, err := isStatic(); err != nil || !static {
		t.Skip("this program is no static one, because of the race detector or CGO_ENABLED=1: ", err)
	}
	return kernels[0], filepath.Join(root, "lib", "modules")
}

// directory returns where hack/vm.sh puts the kernel: bin/vm beside go.mod.
func directory() (string, error) {
	at, err := os.Getwd()
	for err == nil {
		if _, gone := os.Stat(filepath.Join(at, "go.mod")); gone == nil {
			return filepath.Join(at, "bin", "vm"), nil
		}
		if filepath.Dir(at) == at {
			err = errors.New("there is no go.mod above the working directory")
		}
		at = filepath.Dir(at)
	}
	return "", err
}

func isStatic() (bool, error) {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false, err
	}
	defer self.Close()
	for _, p := range self.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}
