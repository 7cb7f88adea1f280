package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// The test program plays the command itself, when it is asked to.
func TestMain(m *testing.M) {
	if os.Getenv("PROGRESS_TEST") != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// module writes a module of three packages, one of them broken if asked for.
func module(t *testing.T, broken bool) string {
	t.Helper()
	dir, fault := t.TempDir(), ""
	if broken {
		fault = "var _ int = \"text\"\n"
	}
	for name, text := range map[string]string{
		"go.mod":       "module example.invalid/m\n\ngo 1.26\n",
		"main.go":      "package main\n\nimport \"example.invalid/m/a\"\n\nfunc main() { a.A() }\n",
		"a/a.go":       "package a\n\nimport \"example.invalid/m/b\"\n\nfunc A() { b.B() }\n",
		"b/b.go":       "package b\n\nfunc B() {}\n" + fault,
		"b/b_test.go":  "package b\n\nimport \"testing\"\n\nfunc TestB(*testing.T) { B() }\n",
		"a/a_test.go":  "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Fatal(\"no\") }\n",
		"c/nothing.go": "package c\n",
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

// progress runs the command, and returns what it wrote and its exit code.
func progress(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "PROGRESS_TEST=1", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

func TestBuildMakesTheProgramQuietly(t *testing.T) {
	dir := module(t, false)
	stdout, stderr, code := progress(t, "-what", "m", "-C", dir, "go", "build", "-o", "made", ".")
	if code != 0 || stdout != "" {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	if strings.Contains(stderr, "example.invalid") {
		t.Errorf("the names of packages were passed on: %q", stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
}

// A program that was kept is not linked again for another clone.
func TestKeptProgramsAreLinkedOnce(t *testing.T) {
	t.Setenv("GOCACHE", t.TempDir())
	for clone, linked := range []bool{true, false} {
		dir := module(t, false)
		_, stderr, code := progress(t, "-what", "m", "-C", dir, "-keep", "go", "build", "-x", "-trimpath", "-o", "new/made", ".")
		if code != 0 || strings.Contains(stderr, "/link -o") != linked {
			t.Errorf("clone %d: exit code %d, errors %q", clone, code, stderr)
		}
		if out, err := exec.Command(filepath.Join(dir, "new/made")).CombinedOutput(); err != nil {
			t.Errorf("clone %d: %v, %s", clone, err, out)
		}
	}
}

// What is downloaded for later neither delays a build nor makes it fail.
func TestFetchIsNoConditionOfABuild(t *testing.T) {
	later := t.TempDir()
	if err := os.WriteFile(filepath.Join(later, "go.mod"), []byte("not a module"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := progress(t, "-what", "m", "-C", module(t, false), "-fetch", later, "go", "build", "-o", "made", "."); code != 0 || strings.Contains(stderr, "not a module") {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
}

func TestBuildPassesErrorsOn(t *testing.T) {
	_, stderr, code := progress(t, "-what", "m", "-C", module(t, true), "go", "build", "-o", "made", ".")
	if code != 1 || !strings.Contains(stderr, "b.go:4:") {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	_, stderr, code = progress(t, "-what", "m", "-C", module(t, false), "go", "build", "-o", "made", "./missing")
	if code != 1 || !strings.Contains(stderr, "missing") {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
}

func TestTestsAreCounted(t *testing.T) {
	stdout, stderr, code := progress(t, "-what", "tests", "-C", module(t, false), "go", "test", "-count=1", "./b", "./...")
	if code != 1 {
		t.Errorf("exit code %d for a test that fails", code)
	}
	if !strings.Contains(stdout, "ok  \texample.invalid/m/b") || !strings.Contains(stdout, "--- FAIL: TestA") {
		t.Errorf("what go test prints is not passed on: %q", stdout)
	}
	if !strings.HasPrefix(stderr, "tests: 0 of 4 packages finished") {
		t.Errorf("said %q", stderr)
	}
	done := 0
	for line := range strings.Lines(stdout) {
		if finished(line) {
			done++
		}
	}
	if done != 4 {
		t.Errorf("%d of 4 packages are counted in %q", done, stdout)
	}
}

func TestSideBySide(t *testing.T) {
	dir := module(t, false)
	stdout, stderr, code := progress(t, "-what", "tests", "-C", dir, "X=1", "go", "test", "-count=1", "./b", "--", "go", "test", "-count=1", "./...")
	if code != 1 {
		t.Errorf("exit code %d for a test that fails", code)
	}
	if n := strings.Count(stdout, "ok  \texample.invalid/m/b"); n != 2 || !strings.Contains(stdout, "--- FAIL: TestA") {
		t.Errorf("one of them is missing: %q", stdout)
	}
	if !strings.HasPrefix(stderr, "tests: 0 of 5 packages finished") {
		t.Errorf("said %q", stderr)
	}
	stdout, stderr, code = progress(t, "-what", "tests", "-C", dir, "go", "test", "-count=1", "./...", "++", "X=1", "go", "test", "-count=1", "./b", "--", "go", "test", "-count=1", "./b")
	if n := strings.Count(stdout, "ok  \texample.invalid/m/b"); code != 1 || n != 3 || !strings.HasPrefix(stderr, "tests: 0 of 6 packages finished") {
		t.Errorf("what comes after a failure is not run: exit code %d, %q, %q", code, stdout, stderr)
	}
	if _, stderr, code := progress(t, "-what", "tests", "-C", dir, "go", "test", "./b", "--", "go", "vet", "test"); code != 1 || !strings.Contains(stderr, `["go" "vet" "test"] is no go test`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestUnits(t *testing.T) {
	list := "runtime\tfalse\t/go/runtime\ta.go b.go \nm/x\ttrue\t/m/x\tx.go \nunsafe\tfalse\t/go/unsafe\t\n"
	sizes := map[string]int64{"/go/runtime/a.go": 10, "/go/runtime/b.go": 20, "/m/x/x.go": 5}
	got := fmt.Sprint(parseUnits(strings.NewReader(list), func(file string) int64 { return sizes[file] }))
	if want := "[{runtime 30 false} {m/x 5 true} {unsafe 0 false}]"; got != want {
		t.Errorf("units %s, want %s", got, want)
	}
}

func TestArgumentsForList(t *testing.T) {
	args := []string{"-trimpath", "-o", "bin/x", "-tags", "a", "."}
	rest, output := withoutOutput(args)
	if got := strings.Join(rest, " "); got != "-trimpath -tags a ." || output != "bin/x" {
		t.Errorf("go list gets %q", got)
	}
	if args[1] != "-o" {
		t.Error("the arguments of go build were changed")
	}
}

// The estimate begins with a guess, and ends up with what was observed, however wrong the guess was.
func TestEstimateFollowsTheSpeed(t *testing.T) {
	var units []unit
	for i := range 100 {
		units = append(units, unit{path: fmt.Sprint(i), bytes: 1 << 20, stale: true})
	}
	e := newEstimate(units, 2)
	if guess := e.left(0); guess < time.Minute || guess > 20*time.Minute {
		t.Errorf("the first guess is %v", guess)
	}
	const perPackage = 20 * time.Second // far slower than guessed
	var elapsed time.Duration
	for i := range 90 {
		if !e.started(fmt.Sprint(i)) || e.started(fmt.Sprint(i)) {
			t.Fatal("a package counts once")
		}
		elapsed += perPackage
	}
	want := 10 * perPackage
	if left := e.left(elapsed); left < want*8/10 || left > want*18/10 {
		t.Errorf("%v left, want about %v and some linking", left, want)
	}
	if e.started("-: cannot find main module") {
		t.Error("an error is no package")
	}
	if text := e.text(elapsed); !strings.HasPrefix(text, "90 of 100 packages, about ") {
		t.Errorf("text %q", text)
	}
}

func TestNothingToCompile(t *testing.T) {
	e := newEstimate([]unit{{path: "a", bytes: 1 << 20}}, 2)
	if left := e.left(0); left > worthTelling {
		t.Errorf("%v left with everything in the cache", left)
	}
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:      "less than a minute",
		49 * time.Second:  "less than a minute",
		50 * time.Second:  "about 1 min",
		100 * time.Second: "about 2 min",
	} {
		if got := about(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := number(1234567) + " " + number(999); got != "1,234,567 999" {
		t.Errorf("numbers %s", got)
	}
}

func TestPlainLinesAreRare(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newScreen(&out, false)
		for i := range 61 {
			s.status(fmt.Sprint("state ", i), time.Hour)
			time.Sleep(time.Second)
		}
		if want := "state 0\nstate 30\nstate 60\n"; out.String() != want {
			t.Errorf("wrote %q, want %q", out.String(), want)
		}
	})
}

func TestShortThingsAreNotTold(t *testing.T) {
	var out bytes.Buffer
	newScreen(&out, false).status("state", 2*time.Second)
	if out.Len() != 0 {
		t.Errorf("wrote %q", out.String())
	}
}

func TestTerminalKeepsOneLine(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, true)
	s.status("one", 0)
	s.status("two", 0)
	s.line("b.go:4: fault")
	s.clear()
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "two") || !strings.HasSuffix(got, "\r\x1b[Kb.go:4: fault\n") {
		t.Errorf("wrote %q", got)
	}
}
