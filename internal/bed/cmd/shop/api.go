//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// account is where a pod has what it needs to speak to its API server.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// callAPI makes a request of the API server of the cluster, as client-go does in a pod, and prints the answer. It fails unless
// the request succeeds.
func callAPI(ctx context.Context, method, path, body string) error {
	token, tokenErr := os.ReadFile(filepath.Join(account, "token"))
	ca, caErr := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err := errors.Join(tokenErr, caErr); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("there is no certificate in ca.crt")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	r, err := http.NewRequestWithContext(ctx, method, "https://"+host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+string(token))
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	if err == nil {
		_, err = fmt.Printf("%s\n", answer)
	}
	return err
}
