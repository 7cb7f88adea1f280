//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealContainers: pods of the real kubelet run in containers, the real kube-proxy leads to them, and the real
// CoreDNS knows the names of their Services.
func TestRealContainers(t *testing.T) {
	if !RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	b := New(t)
	k := b.AddCluster(t.Context(), "box", "10.77.0.1/24")
	ctx, cancel := context.WithTimeout(t.Context(), Hang)
	defer cancel()
	if err := k.StartControllers(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.StartKubelet(ctx); err != nil {
		t.Fatal(err)
	}
	// The namespace has a service account a moment after the controllers have started.
	if err := Poll(ctx, func() error {
		return k.Apply(ctx, `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: `+Image+`, command: [sh, -c, 'echo hello; exec nc -ll -p 8080 -e /bin/hostname']}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.43.0.80
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`)
	}); err != nil {
		t.Fatal(err)
	}
	if err := Poll(ctx, func() error {
		out, err := k.Kubectl(ctx, "logs", "web")
		if err == nil && out != "hello\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := k.Kubectl(ctx, "exec", "web", "--", "hostname"); err != nil || out != "web\n" {
		t.Errorf("exec: %q %v", out, err)
	}
	for _, mode := range []ProxyMode{ProxyIPTables, ProxyNFTables} {
		p, err := k.StartKubeProxy(ctx, mode)
		if err == nil && mode == ProxyIPTables {
			err = k.StartCoreDNS(ctx, netip.MustParseAddr("10.77.0.1"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := Poll(ctx, func() error {
			c, err := k.Host.DialContext(ctx, "tcp", "10.43.0.80:80")
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			answer, err := io.ReadAll(c)
			if err == nil && string(answer) != "web\n" {
				err = fmt.Errorf("it answers %q", answer)
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		// By the search list that the container has. Its own name is in its /etc/hosts.
		if err := Poll(ctx, func() error {
			out, err := k.Kubectl(ctx, "exec", "web", "--", "shop", "look", "web.default")
			if err == nil && out != "web.default\t10.43.0.80\n" {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if err := k.EndKubeProxy(ctx, p, mode); err != nil {
			t.Fatal(err)
		}
		if out, err := k.Host.Run(ctx, "nft", "list", "ruleset"); err != nil || strings.Contains(out, "10.43.0.80") {
			t.Errorf("%s: its rules stay: %v\n%s", mode, err, out)
		}
	}
	if _, err := k.Kubectl(ctx, "delete", "pod", "web", "--timeout=60s"); err != nil {
		t.Error(err)
	}
}

// TestLocalPath: a claim of the default class is a directory of the host, and goes with the claim.
func TestLocalPath(t *testing.T) {
	if !RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	b := New(t)
	k := b.AddCluster(t.Context(), "box", "10.77.0.1/24")
	ctx, cancel := context.WithTimeout(t.Context(), Hang)
	defer cancel()
	if err := errors.Join(k.StartControllers(ctx), k.StartKubelet(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.StartLocalPath(ctx); err != nil {
		t.Fatal(err)
	}
	if err := Poll(ctx, func() error {
		return k.Apply(ctx, `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: writer, image: `+Image+`, command: [sh, -c, 'echo hello > /data/said; exec sleep 1000000'], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`)
	}); err != nil {
		t.Fatal(err)
	}
	// is waits until there are so many directories of volumes, each with what the pod wrote.
	is := func(want int) {
		t.Helper()
		if err := Poll(ctx, func() error {
			dirs, err := filepath.Glob(filepath.Join(k.Host.Path(LocalPathDir), "*"))
			if err == nil && len(dirs) != want {
				err = fmt.Errorf("there are directories %v", dirs)
			}
			for _, dir := range dirs {
				said, readErr := os.ReadFile(filepath.Join(dir, "said"))
				if readErr == nil && string(said) != "hello\n" {
					readErr = fmt.Errorf("%s has %q", dir, said)
				}
				err = errors.Join(err, readErr)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	is(1)
	if out, err := k.Kubectl(ctx, "delete", "pod/writer", "pvc/data", "--timeout=60s"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	is(0)
}
