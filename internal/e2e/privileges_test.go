//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/rbac"
	"liqo.io/agent/sharing/workload"
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

func (x *box) limit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	issued := make(chan error, 1) // there are no controllers yet, and mostly never
	go func() { issued <- x.kube.IssueToken(ctx, rbac.DefaultNamespace, rbac.TokenName) }()
	if _, err := x.host.Run(ctx, x.bin, "rbac", "--apply"); err != nil {
		return fmt.Errorf("%s: %w", x.host.Name, err)
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
	if err := x.limit(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.uses(conn.AgentKubeconfig)
	x.audit() // until it is noticed that the file is gone, there are refusals
	x.mustCLI("rbac", "--delete", "--yes")
	x.uses(bed.Kubeconfig)
}

// Two boxes share what they have, from the first contact to the end, which takes most
// of the privileges that there are. Their API servers cannot stream lists, like those
// before Kubernetes 1.34.
func TestSharingWithLeastPrivilege(t *testing.T) {
	t.Parallel()
	bd := bed.New(t)
	boxes := newBoxes(t, bd, "alder", "birch")
	a, b := boxes[0], boxes[1]
	startKubes(t, bd, []string{"--feature-gates=WatchList=false"}, boxes...)
	staff(t, boxes...)
	for _, x := range boxes {
		x.start()
		x.uses(conn.AgentKubeconfig)
	}
	p := &pair{bed: bd, a: a, b: b, aID: a.id(), bID: b.id()}
	a.awaitFC("appears", p.bID, reachable)
	b.awaitFC("appears", p.aID, reachable)
	p.join()
	node := a.awaitNode(p.b.asNode(), true)
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.kubectl("create", "configmap", "-n", "shop", "settings", "--from-literal=color=green")
	a.kubectl("create", "secret", "generic", "-n", "shop", "password", "--from-literal=word=sesame")
	a.tolerates()
	a.apply(deployment("web", 4, "", `        env:
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
        volumeMounts: [{name: password, mountPath: /secret}]
      volumes: [{name: password, secret: {secretName: password}}]
`))
	pods := p.settled(2)
	guest := "/api/v1/namespaces/" + workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
	a.kubectl("patch", "configmap", "-n", "shop", "settings", "--type", "merge", "-p", `{"data":{"color":"red"}}`)
	b.eventually("the change arrives", func() error {
		config, _, err := get[corev1.ConfigMap](b, guest+"/configmaps/settings")
		if err == nil && config.Data["color"] != "red" {
			err = fmt.Errorf("it has %v", config.Data)
		}
		return err
	})
	// The kubelet API has a certificate and asks who calls; the containers are kwok's,
	// who answers nothing.
	a.eventually("the node says where its kubelet API is", func() (err error) {
		if node, err = a.node(p.b.asNode()); err == nil && (node == nil || node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0) {
			err = fmt.Errorf("it is %+v", node)
		}
		return err
	})
	kubelet := fmt.Sprintf("https://%s:%d/pods", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if out, err := a.host.Run(t.Context(), "curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}",
		"--header", "Authorization: Bearer nobody", kubelet); out != "401" {
		t.Errorf("GET %s with a wrong token: %s, %v", kubelet, out, err)
	}
	a.eventually("logs are asked for at the provider", func() error {
		_, err := a.kube.Request(t.Context(), "GET", "/api/v1/namespaces/shop/pods/"+pods[0].Name+"/log", "", nil)
		if err == nil || strings.Contains(err.Error(), "birch") || strings.Contains(err.Error(), "10.77.0.2") {
			return nil
		}
		return err
	})
	a.apply(`apiVersion: v1
kind: Pod
metadata: {name: disk, namespace: shop}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + p.b.asNode() + `}
  containers: [{name: web, image: web:1}]
  volumes: [{name: disk, hostPath: {path: /}}]
`)
	a.eventually("a pod that cannot go says so", func() error {
		out, err := a.events("disk")
		if err == nil && !strings.Contains(out, workload.ReasonNotOffloadable) {
			err = errors.New(out)
		}
		return err
	})
	a.kubectl("delete", "pod", "-n", "shop", "disk", "--timeout=20s")
	a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=2")
	p.settled(-1) // which of them go, the ReplicaSet decides

	a.mustCLI("peers", "disconnect", p.bID, "--timeout", "50s")
	a.gone("/api/v1/nodes/" + p.b.asNode())
	a.gone("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + p.b.asNode())
	b.gone(prPath + "/" + p.aID)
	b.eventually("nothing is left", func() error {
		spaces, err := list[metav1.PartialObjectMetadata](b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster)
		if err == nil && len(spaces) > 0 {
			err = fmt.Errorf("%d namespaces", len(spaces))
		}
		return err
	})
}
