package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program plays the command itself, when it is asked to, and burns a processor.
func TestMain(m *testing.M) {
	if os.Getenv("FLAKES_TEST_WAITS") != "" {
		waits()
		os.Exit(0)
	}
	if os.Getenv("FLAKES_TEST") != "" || slices.Contains(os.Args, burnArg) {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// module writes a module with one package of tests.
func module(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.invalid/m\n\ngo 1.26\n",
		"a/a.go":        "package a\n",
		"a/a_test.go":   "package a\n\n" + tests,
		"none/empty.go": "package none\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// flakes prepares the command, without the race detector, in a directory.
func flakes(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{"-race=false", "-dir", "kept"}, args...)...)
	cmd.Dir = dir
	// What is killed cannot remove its temporary files.
	cmd.Env = append(os.Environ(), "FLAKES_TEST=1", "GOFLAGS=", "GOWORK=off", "TMPDIR="+t.TempDir())
	return cmd
}

// A test that fails with one processor only is found, and fails again with the seed that is printed.
func TestFindsAndReplays(t *testing.T) {
	dir := module(t, `import ("runtime"; "testing")

func TestGood(t *testing.T) {}

func TestNeedsTwo(t *testing.T) {
	t.Run("really", func(t *testing.T) {
		if runtime.GOMAXPROCS(0) == 1 {
			t.Error("only one processor")
		}
	})
}
`)
	out, err := flakes(t, dir, "-n", "12", "-seed", "1").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("ended with %v: %s", err, out)
	}
	want := 0
	for seed := int64(1); seed <= 12; seed++ {
		if conditionsOf(seed, 2).procs == 1 {
			want++
		}
	}
	if want == 0 || want == 12 {
		t.Fatal("the seeds of this test are no choice")
	}
	if row := regexp.MustCompile(fmt.Sprintf(`(?m)^%d of 12 +\./a +TestNeedsTwo/really +\d`, want)); !row.Match(out) {
		t.Errorf("no row %v in:\n%s", row, out)
	}
	if bytes.Contains(out, []byte("TestGood")) {
		t.Errorf("TestGood has not failed:\n%s", out)
	}
	m := regexp.MustCompile(`log: (\S+)\n +again: make flakes N=1 SEED=(\d+) PKG=(\S+)\n`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no command to replay in:\n%s", out)
	}
	log, err := os.ReadFile(string(m[1]))
	if err != nil || !bytes.Contains(log, []byte("only one processor")) {
		t.Errorf("log %q, %v", log, err)
	}
	for range 2 {
		again, err := flakes(t, dir, "-n", "1", "-seed", string(m[2]), "-pkg", string(m[3])).Output()
		if err == nil || !bytes.Contains(again, []byte("GOMAXPROCS=1,")) {
			t.Errorf("the same seed gave %v:\n%s", err, again)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "kept", ".running-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// Where the seed says so, the same tests run beside those that count.
func TestTwins(t *testing.T) {
	dir := module(t, `import ("os"; "path/filepath"; "testing")

func TestAlone(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/exe")
	running := 0
	for _, file := range files {
		if exe, _ := os.Readlink(file); exe == self {
			running++
		}
	}
	if running > 1 {
		t.Errorf("%d beside it", running-1)
	}
}
`)
	out, err := flakes(t, dir, "-n", "12", "-seed", "1").Output()
	want := 0
	for seed := int64(1); seed <= 12; seed++ {
		if conditionsOf(seed, 2).twins > 0 {
			want++
		}
	}
	if want == 0 || want == 12 {
		t.Fatal("the seeds of this test are no choice")
	}
	if row := regexp.MustCompile(fmt.Sprintf(`(?m)^%d of 12 +\./a +TestAlone +\d`, want)); err == nil || !row.Match(out) {
		t.Errorf("no row %v in:\n%s", row, out)
	}
}

func TestPasses(t *testing.T) {
	dir := module(t, "import \"testing\"\n\nfunc TestGood(t *testing.T) {}\n")
	out, err := flakes(t, dir, "-n", "3").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("no test failed in 3 runs of 1 packages")) {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, err := flakes(t, dir, "-n", "1", "-run", "TestOther").CombinedOutput(); err == nil {
		t.Errorf("passed without a test:\n%s", out)
	}
	if out, err := flakes(t, dir, "-n", "0").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("-for")) {
		t.Errorf("without any end: %v:\n%s", err, out)
	}
	if out, err := flakes(t, dir, "-n", "0", "-for", "100ms").CombinedOutput(); err != nil {
		t.Errorf("for a while: %v:\n%s", err, out)
	}
}

// Whether it is interrupted or killed, nothing that it has started goes on.
func TestEndsWhatItStarted(t *testing.T) {
	for name, signal := range map[string]unix.Signal{"interrupted": unix.SIGINT, "killed": unix.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			dir := module(t, `import ("os"; "testing"; "time")

func TestHangs(t *testing.T) {
	os.WriteFile("../hangs", nil, 0o644)
	time.Sleep(time.Hour)
}
`)
			// A seed with a process that burns a processor, and with a twin.
			seed := int64(1)
			for c := conditionsOf(seed, 1); c.busy == 0 || c.twins == 0; c = conditionsOf(seed, 1) {
				seed++
			}
			cmd := flakes(t, dir, "-n", "1", "-seed", fmt.Sprint(seed))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the test to hang", func() bool { _, err := os.Stat(filepath.Join(dir, "hangs")); return err == nil })
			all, err := processes()
			if err != nil {
				t.Fatal(err)
			}
			tree := descendants(all, cmd.Process.Pid)
			if len(tree) < 2 {
				t.Fatalf("it runs without children: %v", tree)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it ended as if everything had passed")
			}
			waitFor(t, "its children to end", func() bool {
				all, err := processes()
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(all, func(p process) bool {
					return p.state != 'Z' && slices.ContainsFunc(tree, func(q process) bool { return p.pid == q.pid })
				})
			})
		})
	}
}

// states returns the states of a process and all below it, by process ID.
func states(t *testing.T, root int) map[int]byte {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[int]byte)
	for _, p := range descendants(all, root) {
		out[p.pid] = p.state
	}
	return out
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A process that a test has stopped stays so, and everything else goes on.
func TestStopsAndContinues(t *testing.T) {
	// Without the context of the test, which ends before its clean-up: killed alone, the shell would leave its children to others.
	cmd := exec.Command("sh", "-c", "sleep 600 & sleep 601 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	root := cmd.Process.Pid
	t.Cleanup(func() { killTree(root); _ = cmd.Wait() })
	var own int
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &own); err != nil || scanErr != nil {
		t.Fatal(err, scanErr)
	}
	waitFor(t, "the children to be other programs", func() bool {
		all, err := processes()
		if err != nil {
			t.Fatal(err)
		}
		tree := descendants(all, root)
		return len(tree) == 3 && testPrograms(tree[:2]) == 1 && testPrograms([]process{tree[0], tree[2]}) == 1
	})
	if err := unix.Kill(own, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	count := func(state byte) int {
		n := 0
		for _, s := range states(t, root) {
			if s == state {
				n++
			}
		}
		return n
	}
	waitFor(t, "the one to stop", func() bool { return states(t, root)[own] == 'T' && count('T') == 1 })

	resume, err := stopTree(root, everyone)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all to stop", func() bool { return count('T') == 3 })
	resume()
	waitFor(t, "two to continue", func() bool { return count('T') == 1 })
	if s := states(t, root); s[own] != 'T' {
		t.Errorf("the one that was stopped before is in state %c", s[own])
	}

	if resume, err = stopTree(root, program); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the program to stop", func() bool { return states(t, root)[root] == 'T' })
	if n := count('T'); n != 2 {
		t.Errorf("%d are stopped, not only the program and the one before", n)
	}
	resume()
	waitFor(t, "the program to continue", func() bool { return count('T') == 1 })
}

// waits runs a child as nsenter does: if the child stops, it stops itself, and lets the child continue when somebody has it continue.
func waits() {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil && !errors.Is(err, unix.EINTR) || status.Exited() || status.Signaled() {
			return
		}
		if status.Stopped() {
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			_ = unix.Kill(cmd.Process.Pid, unix.SIGCONT)
		}
	}
}

// TestParentsSeeNothing: a parent that stops when its child does goes on after both were stopped, although it gets to run late.
func TestParentsSeeNothing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `nice -n 19 "$0" & wait`, self)
	cmd.Env = append(os.Environ(), "FLAKES_TEST_WAITS=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	root := cmd.Process.Pid
	t.Cleanup(func() { killTree(root); _ = cmd.Wait() })
	waitFor(t, "its child", func() bool { return len(states(t, root)) == 3 })
	for range runtime.NumCPU() {
		burner := exec.Command("/proc/self/exe", burnArg)
		wait, err := start(t.Context(), burner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = burner.Process.Kill(); _ = wait() })
	}
	for range 20 {
		resume, err := stopTree(root, everyone)
		resume()
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "all to continue", func() bool {
			s := states(t, root)
			return len(s) == 3 && !slices.Contains(slices.Collect(maps.Values(s)), 'T')
		})
	}
}

func TestStat(t *testing.T) {
	p, err := parseStat([]byte("12 (a ) b) S 7 12 12 0"))
	if err != nil || p != (process{pid: 12, parent: 7, state: 'S'}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "12", "12 (x)", ") (", "x (y) S 1"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	all := []process{{pid: 4, parent: 3}, {pid: 2, parent: 1}, {pid: 3, parent: 2}, {pid: 9, parent: 1}}
	if got := fmt.Sprint(descendants(all, 2)); got != "[{2 1 0} {3 2 0} {4 3 0}]" {
		t.Errorf("descendants %s", got)
	}
}

func TestConditionsFollowFromTheSeed(t *testing.T) {
	kinds := make(map[string]bool)
	for seed := range int64(5000) {
		c := conditionsOf(seed, 2)
		if c != conditionsOf(seed, 2) {
			t.Fatal("two runs with a seed differ")
		}
		if c.busy > 2 {
			t.Errorf("%d busy processes for two processors", c.busy)
		}
		kinds[c.String()] = true
		if c.stops.pause == 0 {
			continue
		}
		for r := random(seed); ; {
			if gap, pause := c.stops.next(r); gap <= 0 || gap > c.stops.gap || pause < time.Millisecond || pause > 200*time.Millisecond {
				t.Errorf("stopped for %v after %v", pause, gap)
			}
			break
		}
	}
	if len(kinds) != 3*3*(1+2*2)*3 {
		t.Errorf("%d different conditions", len(kinds))
	}
}

func TestLogs(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want string
		none bool
	}{
		"passed": {"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\nPASS\n", "[]", false},
		"failed with a subtest": {"\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n\x16=== RUN   TestA/xy\n" +
			"\x16--- FAIL: TestA (0.00s)\n    \x16--- FAIL: TestA/x (0.00s)\n    \x16--- PASS: TestA/xy (0.00s)\nFAIL\n", "[TestA/x]", false},
		"after a line without an end": {"\x16=== RUN   TestA\nwaiting...\x16--- FAIL: TestA (0.00s)\n", "[TestA]", false},
		"timed out":                   {"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\npanic: test timed out after 1s\n", "[TestB]", false},
		"no tests":                    {"testing: warning: no tests to run\nPASS\n", "[]", true},
	} {
		failed, none := parseLog([]byte(c.log))
		if got := fmt.Sprint(failed); got != c.want || none != c.none {
			t.Errorf("%s: failed %s, none %t", name, got, none)
		}
	}
}

func TestSummary(t *testing.T) {
	s := newSummary()
	b := binary{pkg: "./a"}
	bad := errors.New("exit status 1")
	s.add(outcome{binary: b, under: conditions{seed: 1}, err: bad, failed: []string{"TestA"}})
	s.add(outcome{binary: b, under: conditions{seed: 2}, err: bad, failed: []string{"TestA", "TestB"}})
	s.add(outcome{binary: b, under: conditions{seed: 3}})
	s.add(outcome{binary: b, under: conditions{seed: 4}, err: bad, skipped: true})
	s.add(outcome{binary: b, under: conditions{seed: 5}, skipped: true})
	var out strings.Builder
	if s.write(&out) {
		t.Error("it has passed")
	}
	want := `
FAILED  PACKAGE  TEST       SEEDS
2 of 4  ./a      TestA      1 2
1 of 4  ./a      (no test)  4
1 of 4  ./a      TestB      2

3 tests failed at least once in 4 runs of 1 packages
`
	if out.String() != want {
		t.Errorf("wrote:\n%s", out.String())
	}
}

func TestReplay(t *testing.T) {
	if got := replay("./state", "", 7); got != "make flakes N=1 SEED=7 PKG=./state" {
		t.Error(got)
	}
	if got := replay("./state", "TestA|TestB", 7); got != "make flakes N=1 SEED=7 PKG=./state RUN='TestA|TestB'" {
		t.Error(got)
	}
	if got := logName("./sharing/host", 7) + " " + logName("./.", 7); got != "sharing-host-7.log root-7.log" {
		t.Error(got)
	}
}

// TestLimit: what four programs do at a time takes longer than what one does.
func TestLimit(t *testing.T) {
	r := &runner{timeout: 20 * time.Minute}
	for twins, want := range map[int]string{0: "-test.timeout=20m0s", 3: "-test.timeout=1h20m0s"} {
		if args := r.command(binary{path: "a.test"}, conditions{twins: twins}, 1).Args; !slices.Contains(args, want) {
			t.Errorf("beside %d of its kind it is run as %q, want %s", twins, args, want)
		}
	}
}
