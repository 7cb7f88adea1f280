//go:build linux

package bed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Starting answers at the port of the API server, which has ended ([Kube.Kill]), as K3s does while it starts: its own paths
// /ping and /cacerts, and 503 for those of the API. The function that it returns ends that, for [Kube.Start].
func (k *Kube) Starting() (end func() error, err error) {
	var listener net.Listener
	if err := k.Host.Do(func() (err error) {
		listener, err = net.Listen("tcp", ":"+kubePort)
		return err
	}); err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ping":
			_, _ = io.WriteString(w, "pong")
		case r.URL.Path == "/cacerts":
			_, _ = w.Write(k.serverCA.pem)
		case strings.HasPrefix(r.URL.Path, "/v1-k3s/"):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","message":"apiserver not ready","code":503}`)
		}
	})}
	var served error
	var serving sync.WaitGroup
	serving.Go(func() {
		served = server.ServeTLS(listener, filepath.Join(k.dir, "tls", "server.crt"), filepath.Join(k.dir, "tls", "server.key"))
	})
	return func() error {
		err := server.Close()
		serving.Wait()
		if !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("host %s: answer as K3s that starts: %w", k.Host.Name, served))
		}
		return err
	}, nil
}
