//go:build linux

package bed

import (
	"context"
	"fmt"
	"testing"
)

func TestRealContainers(t *testing.T) {
	if !RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	b := New(t)
	k := b.AddHost("box", "10.77.0.1/24").StartKube(t.Context())
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
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: `+Image+`, command: [sh, -c, 'echo hello; exec sleep 100000']}]
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
	if _, err := k.Kubectl(ctx, "delete", "pod", "web", "--timeout=60s"); err != nil {
		t.Error(err)
	}
}
