package admission

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestIdentityIsAFunctionOfTheKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	load := func() *identity {
		id, err := loadIdentity(dir, logger)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, second := load(), load()
	if !bytes.Equal(first.bundle, second.bundle) || !bytes.Equal(first.certificate.Certificate[0], second.certificate.Certificate[0]) {
		t.Error("the certificates changed")
	}
	if log.Len() != 0 {
		t.Errorf("logged: %s", &log)
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if other, err := loadIdentity(t.TempDir(), logger); err != nil || bytes.Equal(first.bundle, other.bundle) {
		t.Errorf("two keys, one CA (%v)", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestCertificateOnAnyClock verifies as an API server does, with its clock.
func TestCertificateOnAnyClock(t *testing.T) {
	id, err := loadIdentity(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(id.bundle) {
		t.Fatal("no certificate in the bundle")
	}
	leaf, err := x509.ParseCertificate(id.certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, year := range []int{1970, 2000, 2026, 2106, 9999} {
		for name, good := range map[string]bool{"127.0.0.1": true, "::1": true, "127.0.0.2": false, "10.0.0.1": false, "localhost": false} {
			_, err := leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: name, CurrentTime: time.Date(year, 1, 1, 0, 0, 1, 0, time.UTC), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			if (err == nil) != good {
				t.Errorf("%s in %d: %v", name, year, err)
			}
		}
	}
	if leaf.IsCA {
		t.Error("the leaf is a CA")
	}
}

func TestUnusableKeyIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"cut off": func(path string) error { return os.Truncate(path, 100) },
		"rubbish": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600) },
		"other PEM": func(path string) error {
			return os.WriteFile(path, []byte("-----BEGIN X-----\n-----END X-----\n"), 0o600)
		},
		"other DER": func(path string) error {
			return os.WriteFile(path, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600)
		},
		"exposed": func(path string) error { return os.Chmod(path, 0o640) },
		"a FIFO": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				return err
			}
			// With somebody who could write, reading it would wait.
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			if err == nil {
				t.Cleanup(func() { writer.Close() })
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, KeyFile)
			first, err := loadIdentity(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			second, err := loadIdentity(dir, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(first.bundle, second.bundle) || !strings.Contains(log.String(), "is replaced") {
				t.Errorf("still the old key, or nothing said: %s", &log)
			}
			log.Reset()
			third, err := loadIdentity(dir, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil || !bytes.Equal(second.bundle, third.bundle) || log.Len() != 0 {
				t.Errorf("replaced again: %v %s", err, &log)
			}
		})
	}
	// What cannot be replaced either is an error that says what to do.
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, KeyFile, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := loadIdentity(dir, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "must be able to write") {
		t.Errorf("error %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "."+KeyFile+"*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func FuzzParseKey(f *testing.F) {
	dir := f.TempDir()
	if _, err := loadIdentity(dir, slog.New(slog.DiscardHandler)); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		private, err := parseKey(text)
		if err != nil {
			return
		}
		if _, err := newIdentity(private); err != nil {
			t.Errorf("a key that was taken is of no use: %v", err)
		}
	})
}
