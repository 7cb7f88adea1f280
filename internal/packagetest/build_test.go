package packagetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// pathEnv keeps the PATH that the test was started with: the bed has one of its own, in which go may be missing.
const pathEnv = "PACKAGETEST_PATH"

func TestMain(m *testing.M) {
	if os.Getenv(pathEnv) == "" {
		if err := os.Setenv(pathEnv, os.Getenv("PATH")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	bed.Main(m)
}

const (
	repository = "../.."
	maintainer = "liqo-agent tests <tests@liqo-agent.invalid>"
	epoch      = "1763790000"
)

// binDir is where make puts programs, or LIQO_BIN.
func binDir() (string, error) {
	if dir := os.Getenv("LIQO_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	return filepath.Abs(filepath.Join(repository, "bin"))
}

// tool runs a program of the machine that builds packages.
func tool(dir string, env []string, args ...string) error {
	cmd := exec.Command("/usr/bin/env", args...) // which looks in the PATH that it is given
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+os.Getenv(pathEnv), "SOURCE_DATE_EPOCH="+epoch), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// made are the packages of two versions: of the newer one for every architecture, and with another default
// configuration. For ARM a small program stands in for the agent: building that takes minutes.
type made struct{ old, new string }

var packages = sync.OnceValues(func() (made, error) {
	dir, err := os.MkdirTemp("/dev/shm", "dist-")
	if err != nil {
		return made{}, err
	}
	m := made{old: filepath.Join(dir, "old"), new: filepath.Join(dir, "new")}
	bin, err := binDir()
	if err != nil {
		return m, err
	}
	stub := func(name string, env ...string) (string, error) {
		path := filepath.Join(dir, name)
		return name + "=" + path, tool(filepath.Join(repository, "packaging/build"), append(env, "CGO_ENABLED=0"),
			"go", "build", "-trimpath", "-o", path, "./testdata/stub")
	}
	arm64, err1 := stub("arm64", "GOARCH=arm64")
	armv7, err2 := stub("armv7", "GOARCH=arm", "GOARM=7")
	if err := errors.Join(err1, err2); err != nil {
		return m, err
	}
	amd64 := "amd64=" + bin + "/liqo-agent"
	var group sync.WaitGroup
	var errs [2]error
	group.Go(func() { errs[0] = pack(m.old, "v0.1.0", repository, amd64) })
	group.Go(func() {
		root, err := inputs(filepath.Join(dir, "root"))
		if err != nil {
			errs[1] = err
			return
		}
		errs[1] = pack(m.new, "v0.2.0", root, amd64, arm64, armv7)
	})
	group.Wait()
	return m, errors.Join(errs[:]...)
})

// pack makes packages.
func pack(out, version, root string, binaries ...string) error {
	bin, err := binDir()
	if err != nil {
		return err
	}
	return tool(root, nil, append([]string{bin + "/packager", "-out", out, "-man", bin + "/man", "-host", bin + "/liqo-agent",
		"-version", version, "-maintainer", maintainer}, binaries...)...)
}

// inputs copies what packages are made from, with one more line in the default configuration.
func inputs(dir string) (string, error) {
	for _, name := range []string{"packaging", "service", "README.md", "CHANGELOG.md", "liqo-agent.toml.example"} {
		err := filepath.WalkDir(filepath.Join(repository, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			to := filepath.Join(dir, strings.TrimPrefix(path, repository))
			return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o600))
		})
		if err != nil {
			return "", err
		}
	}
	example := filepath.Join(dir, "liqo-agent.toml.example")
	b, err := os.ReadFile(example)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(example, append(b, newDefault...), 0o600)
}

// newDefault is what the default configuration of the newer version has more.
const newDefault = "# new in this version\n"

func built(t *testing.T) made {
	t.Helper()
	bin, err := binDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"liqo-agent", "packager", "man"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("%v: run make build bin/packager man", err)
		}
	}
	m, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The same inputs in another place, with other modes and at another time, in another time zone and under another umask,
// give the same bytes.
func TestPackagesAreReproducible(t *testing.T) {
	first := built(t).new
	dir := t.TempDir()
	root, err := inputs(filepath.Join(dir, "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "dist")
	bin, err := binDir()
	if err != nil {
		t.Fatal(err)
	}
	script := `umask 077; chmod -R u=rwX,go= .; exec "$@"`
	err = tool(root, []string{"TZ=Pacific/Kiritimati", "GOMAXPROCS=1", "TMPDIR=" + dir}, "sh", "-c", script, "sh",
		bin+"/packager", "-out", second, "-man", bin+"/man", "-host", bin+"/liqo-agent", "-version", "v0.2.0", "-maintainer", maintainer,
		"armv7="+filepath.Join(filepath.Dir(first), "armv7"), "amd64="+bin+"/liqo-agent", "arm64="+filepath.Join(filepath.Dir(first), "arm64"))
	if err != nil {
		t.Fatal(err)
	}
	one, err1 := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	two, err2 := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Errorf("first:\n%s\nsecond:\n%s", one, two)
	}
	// 3 architectures: .deb, .rpm, binary and SBOM; install.sh.
	if n := bytes.Count(one, []byte("\n")); n != 13 {
		t.Errorf("%d files are in SHA256SUMS:\n%s", n, one)
	}
	if err := tool(second, nil, "sha256sum", "--check", "--strict", "SHA256SUMS"); err != nil {
		t.Error(err)
	}
}

// The binary does not say where it was built: from two folders, it has the same bytes.
func TestBinaryIsReproducible(t *testing.T) {
	source, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "build-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var group sync.WaitGroup
	var binaries [2][]byte
	var errs [2]error
	for i, name := range []string{"one", "quite/another"} {
		folder, binary := filepath.Join(dir, name), filepath.Join(dir, fmt.Sprint("binary", i))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, folder, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if errs[i] = tool(folder, []string{"CGO_ENABLED=0"}, "make", "--silent", "AGENT="+binary, "VERSION=v0.2.0", "COMMIT=none", "build"); errs[i] == nil {
				binaries[i], errs[i] = os.ReadFile(binary)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(binaries[0], binaries[1]) {
		t.Errorf("%x and %x", sha256.Sum256(binaries[0]), sha256.Sum256(binaries[1]))
	}
	// A template may call any method by its name, so the linker would keep all methods of all types: 5 MB.
	if bytes.Contains(binaries[0], []byte("text/template.(*state).evalField")) {
		t.Error("the binary runs templates")
	}
}
