//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/workload"
)

// debugged is the state of an ephemeral container of the pod web in namespace shop.
func (x *box) debugged(name string) (corev1.ContainerState, error) {
	pod, _, err := get[corev1.Pod](x, "/api/v1/namespaces/shop/pods/web")
	for _, s := range pod.Status.EphemeralContainerStatuses {
		if s.Name == name {
			return s.State, err
		}
	}
	return corev1.ContainerState{}, errors.Join(err, fmt.Errorf("there is no ephemeral container %s", name))
}

// kubectlDebug adds ephemeral containers to the pod web, which runs at the provider.
func (p *pair) kubectlDebug(t *testing.T) {
	a, b := p.a, p.b
	// Who has nothing more to say is detached at once, so somebody waits for the answer.
	out, err := a.tryShell("{ echo 'cat /proc/1/cmdline; echo; exit 5'; for i in $(seq 300); do kubectl logs -n shop web -c look 2>/dev/null | grep -q httpd && break; sleep 0.2; done; } | kubectl debug -i -n shop web --image=" + bed.Image + " --target=web -c look -- sh")
	if err != nil || !strings.Contains(out, "httpd") {
		t.Errorf("kubectl debug -i --target: %q %v", out, err)
	}
	a.eventually("how it ended is seen", func() error {
		s, err := a.debugged("look")
		if err == nil && (s.Terminated == nil || s.Terminated.ExitCode != 5) {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
	if out := a.kubectl("logs", "-n", "shop", "web", "-c", "look"); !strings.Contains(out, "httpd") {
		t.Errorf("its log: %q", out)
	}

	a.kubectl("debug", "-n", "shop", "web", "--image="+bed.Image, "-c", "stays", "--env=WHERE=here", "--", "sleep", "600")
	a.eventually("it runs", func() error {
		s, err := a.debugged("stays")
		if err == nil && s.Running == nil {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
	if out := a.kubectl("exec", "-n", "shop", "web", "-c", "stays", "--", "sh", "-c", "echo $WHERE; hostname"); out != "here\nweb\n" {
		t.Errorf("exec: %q", out)
	}

	for name, refused := range map[string]struct{ args, reason, says string }{
		"elsewhere": {"--image=registry.example.net/tools:1", workload.ReasonRefusedByProvider, workload.ReasonRegistryNotAllowed},
		"admin":     {"--profile=sysadmin --image=" + bed.Image, workload.ReasonNotOffloadable, "privileged"},
	} {
		a.shell("kubectl debug -n shop web -c " + name + " " + refused.args + " -- sleep 600")
		a.eventually("it is refused", func() error {
			s, err := a.debugged(name)
			if err == nil && (s.Terminated == nil || s.Terminated.Reason != refused.reason || !strings.Contains(s.Terminated.Message, refused.says)) {
				err = fmt.Errorf("it is %+v", s)
			}
			return err
		})
		a.eventually("an event says why", func() error {
			out, err := a.events("web")
			if err == nil && (!strings.Contains(out, "Warning "+refused.reason+": ") || !strings.Contains(out, refused.says)) {
				err = errors.New(out)
			}
			return err
		})
	}
	guests, err := b.guests(p.aID)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range guests {
		for _, e := range pod.Spec.EphemeralContainers {
			if e.Name != "look" && e.Name != "stays" {
				t.Errorf("the provider has %s", e.Name)
			}
		}
	}
}
