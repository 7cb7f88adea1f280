package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
)

func mustKey(t testing.TB) *Key {
	t.Helper()
	k, err := generateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyIsCreatedOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.Fingerprint().IsZero() || first.Fingerprint() != second.Fingerprint() {
		t.Errorf("fingerprints %v and %v", first.Fingerprint(), second.Fingerprint())
	}
	if !bytes.Equal(first.CA().Raw, second.CA().Raw) {
		t.Error("the CA certificate differs between two starts")
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	assertAlone(t, dir)
}

// assertAlone checks that the key file is all there is in dir: no temporary
// file with key material stays behind.
func assertAlone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != KeyFile {
			t.Errorf("%s is left in the directory", e.Name())
		}
	}
}

func TestRacingCreatorsEndWithOneKey(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		const racers = 8
		var fps [racers]peer.Fingerprint
		var errs [racers]error
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range racers {
			wg.Go(func() {
				<-start
				key, err := LoadOrCreateKey(dir)
				if err == nil {
					fps[i] = key.Fingerprint()
				}
				errs[i] = err
			})
		}
		close(start)
		wg.Wait()
		for i := range racers {
			if errs[i] != nil || fps[i] != fps[0] {
				t.Fatalf("racer %d: %v, %v; racer 0: %v", i, fps[i], errs[i], fps[0])
			}
		}
		assertAlone(t, dir)
	}
}

func pemOf(t *testing.T, blockType string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

func TestUnusableKeyFiles(t *testing.T) {
	good, err := encodeKey(mustKey(t))
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[60] ^= 1
	for _, tc := range []struct {
		name    string
		content []byte
		mode    os.FileMode
		want    error
		says    string
	}{
		{"empty", nil, 0o600, ErrKeyDamaged, "is empty"},
		{"half written", good[:len(good)/2], 0o600, ErrKeyDamaged, "no complete PEM block"},
		{"zeros after a power cut", make([]byte, 241), 0o600, ErrKeyDamaged, "no complete PEM block"},
		{"flipped bit", flipped, 0o600, ErrKeyDamaged, "restore the file from a backup"},
		{"two keys", append(bytes.Clone(good), good...), 0o600, ErrKeyDamaged, "goes on after the key"},
		{"huge", bytes.Repeat(good, 100), 0o600, ErrKeyDamaged, "larger than"},
		{"ed25519", pemOf(t, "PRIVATE KEY", ed), 0o600, ErrKeyDamaged, "want ECDSA on P-256"},
		{"P-384", pemOf(t, "PRIVATE KEY", p384), 0o600, ErrKeyDamaged, "ECDSA on P-384"},
		{"wrong block", pemOf(t, "EC PRIVATE KEY", p384), 0o600, ErrKeyDamaged, `"EC PRIVATE KEY"`},
		{"group readable", good, 0o640, ErrKeyExposed, "chmod 600"},
		{"world writable", good, 0o602, ErrKeyExposed, "chmod 600"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, KeyFile)
			if err := os.WriteFile(path, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreateKey(dir)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			for _, s := range []string{tc.says, path} {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, tc.content) {
				t.Errorf("the file was touched: %v", err)
			}
		})
	}
}

func TestKeyPathIsNotAFile(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := make(filepath.Join(dir, KeyFile)); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreateKey(dir)
			if !errors.Is(err, ErrKeyDamaged) && !errors.Is(err, ErrKeyAccess) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestKeyBehindSymbolicLink(t *testing.T) {
	real, dir := t.TempDir(), t.TempDir()
	want, err := LoadOrCreateKey(real)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(real, KeyFile), filepath.Join(dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	got, err := LoadOrCreateKey(dir)
	if err != nil || got.Fingerprint() != want.Fingerprint() {
		t.Errorf("%v, %v", got, err)
	}
}

func TestForeignOwner(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadOrCreateKey(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, KeyFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := os.Geteuid()
	if err := checkPrivate(path, info, owner); err != nil {
		t.Errorf("own file refused: %v", err)
	}
	if owner == 0 {
		if err := checkPrivate(path, info, 65534); err != nil {
			t.Errorf("root's file refused: %v", err)
		}
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadOrCreateKey(dir); !errors.Is(err, ErrKeyExposed) || !strings.Contains(err.Error(), "chown 0") {
			t.Errorf("foreign file: %v", err)
		}
	}
}

// asNobody runs f without root's power over file permissions. When the tests
// do not run as root there is nothing to give up.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := unix.SetfsuidRetUid(0); err != nil {
			panic(err) // this thread must not go back to the scheduler
		}
	}()
	f()
}

// openDir returns a new directory that every user can get to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNoAccess(t *testing.T) {
	dir := openDir(t)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		_, err := LoadOrCreateKey(dir)
		if !errors.Is(err, ErrKeyAccess) || !strings.Contains(err.Error(), "state.dir") {
			t.Errorf("read-only directory: %v", err)
		}
	})

	dir = openDir(t)
	if _, err := LoadOrCreateKey(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, KeyFile), 0); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		_, err := LoadOrCreateKey(dir)
		if !errors.Is(err, ErrKeyAccess) || !strings.Contains(err.Error(), "must be readable by user id") {
			t.Errorf("unreadable file: %v", err)
		}
	})
}

func TestCACertificateIsValidOnAnyClock(t *testing.T) {
	ca := mustKey(t).CA()
	if err := ca.CheckSignatureFrom(ca); err != nil {
		t.Error(err)
	}
	for _, now := range []time.Time{time.Unix(0, 0), time.Now(), time.Date(2106, 2, 7, 0, 0, 0, 0, time.UTC)} {
		if now.Before(ca.NotBefore) || now.After(ca.NotAfter) {
			t.Errorf("not valid at %v", now)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	good, err := encodeKey(mustKey(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:100])
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := parseKey(data)
		if err != nil {
			return
		}
		again, err := encodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		same, err := parseKey(again)
		if err != nil || same.Fingerprint() != key.Fingerprint() {
			t.Errorf("the key does not survive its own encoding: %v", err)
		}
	})
}
