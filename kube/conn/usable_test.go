package conn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
)

// namingCA is a kubeconfig that has its authority in a file of its own.
func namingCA(server, ca string) string {
	return strings.Replace(kubeconfigText(server), `server: "`, `certificate-authority: "`+ca+`", server: "`, 1)
}

// authority is a certificate, as text.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// What stands in the way of a kubeconfig may be outside of it: a file that it names, or
// who may read it. When that is put right, the kubeconfig is used as it is.
func TestKubeconfigThatBecomesUsable(t *testing.T) {
	dir, text := t.TempDir(), authority(t)
	bubble.Test(t, func(t *testing.T) {
		path, ca := filepath.Join(dir, "config"), filepath.Join(dir, "ca.crt")
		write(t, path, namingCA("https://one", ca))
		c := New(Config{Kubeconfig: func() string { return path }, Another: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
		attempts := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx, func(ctx context.Context, s *Session) error {
				attempts <- s.config.Host
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		defer func() { cancel(); <-ended }()
		attempted := func(want string) {
			t.Helper()
			time.Sleep(2*c.pollEvery + Backoff.Max) // fake time
			synctest.Wait()
			got := ""
			for len(attempts) > 0 {
				got = <-attempts
			}
			if got != want {
				t.Errorf("an attempt with %q, want %q; %s", got, want, c.Status().LastError)
			}
		}
		attempted("")
		write(t, ca, "half")
		attempted("")
		write(t, ca, text)
		attempted("https://one")

		// The same while there is a connection.
		write(t, path, namingCA("https://two", ca+".next"))
		attempted("")
		write(t, ca+".next", text)
		attempted("https://two")
	})
}

// A person who gives the agent the right to read its kubeconfig need not touch it.
func TestKubeconfigThatMayBeRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "config")
		write(t, path, kubeconfigText("https://one"))
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		c := New(Config{Kubeconfig: func() string { return path }, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(10*time.Second, func() {
			if err := os.Chmod(path, 0o600); err != nil {
				t.Error(err)
			}
		})
		if _, err := c.await(ctx); err != nil {
			t.Errorf("%v: %s", err, c.Status().LastError)
		}
	})
}
