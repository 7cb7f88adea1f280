//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/rbac"
)

// limit gives the agents of boxes the user of their own, and has the test fail if it is
// refused anything.
func limit(t *testing.T, boxes ...*box) {
	t.Helper()
	errs := make([]error, len(boxes))
	var group sync.WaitGroup
	for i, x := range boxes {
		group.Go(func() { errs[i] = x.limit(t.Context()) })
		t.Cleanup(x.audit)
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// preparedKubeconfig is where the control planes that tests borrow have the kubeconfig of the agent's user, who is there already.
const preparedKubeconfig = "/var/lib/rancher/k3s/server/agent.kubeconfig"

func (x *box) limit(ctx context.Context) error {
	if _, err := os.Stat(x.host.Path(preparedKubeconfig)); err != nil {
		return makeUser(ctx, x.kube, x.bin, conn.AgentKubeconfig)
	}
	_, err := x.host.Run(ctx, "install", "-D", "-m", "600", preparedKubeconfig, conn.AgentKubeconfig)
	return err
}

// makeUser makes the user of the agent, as an administrator does, and writes its kubeconfig to a file of the host.
func makeUser(ctx context.Context, k *bed.Kube, agent, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	issued := make(chan error, 1) // there are no controllers yet, and mostly never
	go func() { issued <- k.IssueToken(ctx, rbac.DefaultNamespace, rbac.TokenName) }()
	args := []string{agent, "rbac", "--apply"}
	if kubeconfig != conn.AgentKubeconfig { // which is the default
		args = append(args, "--out", kubeconfig)
	}
	if _, err := k.Host.Run(ctx, args...); err != nil {
		return fmt.Errorf("%s: %w", k.Host.Name, err)
	}
	return <-issued
}

// audit fails the test if the box's API server refused its agent anything for lack of
// privileges that the test did not take from it, and notes what privileges it used.
func (x *box) audit() {
	events, err := x.kube.Audit()
	if err != nil {
		x.t.Error(err)
	}
	if len(events) == 0 {
		x.t.Errorf("%s: the API server never heard of %s", x.host.Name, bed.AuditedUser)
	}
	for _, why := range lacking(events) {
		if x.deprived == "" || !strings.Contains(why, x.deprived) {
			x.t.Errorf("%s lacks privileges: %s", x.host.Name, why)
		}
	}
	used.add(events)
}

// lacking is what an API server refused an agent for lack of privileges, each thing once.
func lacking(events []bed.AuditEvent) []string {
	var out []string
	for _, event := range events {
		if why := refused(event); why != "" && !slices.Contains(out, why) {
			out = append(out, why)
		}
	}
	return out
}

// refused says what the API server refused an agent for lack of privileges, "" for
// nothing. What a peer may not do is another thing.
func refused(event bed.AuditEvent) string {
	switch {
	case event.ResponseStatus.Code != http.StatusForbidden || event.ImpersonatedUser != nil || event.Starting:
		return ""
	case otherwiseForbidden.MatchString(event.ResponseStatus.Message):
		return ""
	}
	return fmt.Sprintf("%s %s: %s", event.Verb, event.RequestURI, event.ResponseStatus.Message)
}

// otherwiseForbidden is what an API server forbids whoever asks.
var otherwiseForbidden = regexp.MustCompile(`because it is being terminated$|while custom resource definition is terminating$`)

// uses waits until the agent is connected by a kubeconfig.
func (x *box) uses(path string) {
	x.t.Helper()
	x.eventually("the agent uses "+path, func() error {
		st, err := x.status()
		if err == nil && (st.Kubernetes.Kubeconfig != path || !st.Kubernetes.Connected) {
			err = fmt.Errorf("it uses %s, connected: %t, %s", st.Kubernetes.Kubeconfig, st.Kubernetes.Connected, st.Kubernetes.LastError)
		}
		return err
	})
}

// An agent that began with the administrator's kubeconfig, as it does without any setup,
// changes over to its own when it gets one, and back again.
func TestOwnUserComesAndGoes(t *testing.T) {
	t.Parallel()
	k := bed.New(t).AddCluster(t.Context(), "alder", "10.77.0.1/24")
	x := newBox(t, k.Host, netip.MustParseAddr("10.77.0.1"))
	x.kube = k
	x.start()
	x.uses(bed.Kubeconfig)
	if err := makeUser(t.Context(), k, x.bin, conn.AgentKubeconfig); err != nil {
		t.Fatal(err)
	}
	x.uses(conn.AgentKubeconfig)
	x.audit() // until it is noticed that the file is gone, there are refusals
	x.mustCLI("rbac", "--delete", "--yes")
	x.uses(bed.Kubeconfig)
}
