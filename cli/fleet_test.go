package cli_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// devicePEM is a public key as a device prints it.
func devicePEM(t *testing.T) (*ecdsa.PublicKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func certificate(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("%q is no PEM", raw)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// A fleet is made and a device certified without any agent, and the files are
// what they are said to be.
func TestFleet(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	in := func(name string) string { return filepath.Join(w.Dir, name) }
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, got := w.Run(t.Context(), args...)
		if got != code {
			t.Fatalf("%v: exit code %d, want %d: %s", args, got, code, stderr)
		}
		return stdout, stderr
	}
	init := []string{"fleet", "init", "--name", "Acme farms", "--cert", in("fleet.pem"), "--key", in("fleet.key")}
	stdout, _ := run(0, init...)
	if stdout != "Wrote $DIR/fleet.pem: set trust.fleet_ca to it on every device.\nWrote $DIR/fleet.key: keep it secret.\n" {
		t.Errorf("output %q", stdout)
	}
	info, err := os.Stat(in("fleet.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", info.Mode(), err)
	}
	caPEM, err := os.ReadFile(in("fleet.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca := certificate(t, caPEM)
	if !ca.IsCA || ca.Subject.CommonName != "Acme farms" {
		t.Errorf("the authority is %+v", ca.Subject)
	}

	// Nothing is overwritten.
	_, stderr := run(command.ExitError, init...)
	if stderr != "liqo-agent: $DIR/fleet.key already exists\ntry: choose another name, or move the file away\n" {
		t.Errorf("a second time: %s", stderr)
	}
	_, _ = run(command.ExitError, "fleet", "init", "--name", "x", "--cert", in("fleet.pem"), "--key", in("other.key"))
	if _, err := os.Stat(in("other.key")); err == nil {
		t.Error("the key of a fleet without a certificate was left behind")
	}
	if again, err := os.ReadFile(in("fleet.pem")); err != nil || !bytes.Equal(again, caPEM) {
		t.Errorf("the certificate was overwritten: %v", err)
	}

	public, device := devicePEM(t)
	if err := os.WriteFile(in("barn.pub"), device, 0o600); err != nil {
		t.Fatal(err)
	}
	sign := []string{"fleet", "sign", "--ca", in("fleet.pem"), "--ca-key", in("fleet.key"), "--id", clitest.Barn}
	stdout, _ = run(0, append(sign, "--public-key", in("barn.pub"), "-o", in("barn.pem"), "--days", "30")...)
	if stdout != "Wrote $DIR/barn.pem\n" {
		t.Errorf("output %q", stdout)
	}
	raw, err := os.ReadFile(in("barn.pem"))
	if err != nil {
		t.Fatal(err)
	}
	w.Stdin = bytes.NewReader(device)
	stdout, _ = run(0, append(sign, "--public-key", "-")...)
	for _, raw := range [][]byte{raw, []byte(stdout)} {
		cert := certificate(t, raw)
		if err := cert.CheckSignatureFrom(ca); err != nil || !public.Equal(cert.PublicKey) || len(cert.URIs) != 1 || cert.URIs[0].String() != "liqo:cluster:"+clitest.Barn {
			t.Errorf("the certificate of the device: %v, %v", err, cert.URIs)
		}
	}
	if days := certificate(t, raw).NotAfter.Sub(clitest.Now); days != 30*24*time.Hour {
		t.Errorf("it is valid for %s", days)
	}

	for want, args := range map[string][]string{
		"fleet sign needs --ca":   {"fleet", "sign"},
		"fleet init needs --name": {"fleet", "init"},
		"--id: ":                  append(sign[:len(sign)-1:len(sign)-1], "UPPER CASE", "--public-key", in("barn.pub")),
		"--public-key: open":      append(sign, "--public-key", in("nosuch")),
		"public key":              append(sign, "--public-key", in("fleet.pem")),
		"days":                    append(sign, "--public-key", in("barn.pub"), "--days", "0"),
		"want 1 to":               {"fleet", "init", "--name", "x", "--years", "0", "--cert", in("a"), "--key", in("b")},
	} {
		_, stderr, code := w.Run(t.Context(), args...)
		if code == command.ExitOK || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
}
