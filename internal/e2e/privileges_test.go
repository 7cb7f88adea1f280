//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// limitedConfig is where a box has the kubeconfig of a user with the privileges that
// the documentation lists.
const limitedConfig = "/etc/liqo-agent/kubeconfig"

// documentedRole is the ClusterRole in docs/security.md, as it stands there.
func documentedRole(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(apiVersion: rbac.*?)^```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/security.md has %d blocks of RBAC rules", len(blocks))
	}
	return string(blocks[0][1])
}

// limit gives the box's agent a user that has the privileges that are documented, and
// no others.
func (x *box) limit() {
	t := x.t
	t.Helper()
	x.apply(`apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-agent, namespace: liqo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: liqo-agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-agent}
subjects: [{kind: ServiceAccount, name: liqo-agent, namespace: liqo}]
---
` + documentedRole(t))
	text, err := x.kube.Request(t.Context(), "POST", "/api/v1/namespaces/liqo/serviceaccounts/liqo-agent/token", "application/json",
		[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`))
	var token struct{ Status struct{ Token string } }
	if err := errors.Join(err, json.Unmarshal(text, &token)); err != nil || token.Status.Token == "" {
		t.Fatalf("no token: %v", err)
	}
	admin, err := os.ReadFile(x.host.Path(bed.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(admin, &config); err != nil {
		t.Fatal(err)
	}
	config["users"] = []any{map[string]any{"name": "default", "user": map[string]any{"token": token.Status.Token}}}
	limited, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	x.host.WriteFile(limitedConfig, string(limited))
}

// forbidden finds what an API server says to whom it does not let do something.
var forbidden = regexp.MustCompile(`.*(?i:is forbidden: user|cannot (get|list|watch|create|update|patch|delete|impersonate|approve) resource|not permitted to|attempting to grant RBAC).*`)

// allowed fails the test if the box's agent was refused anything for lack of
// privileges.
func (x *box) allowed() {
	x.t.Helper()
	for i, line := range forbidden.FindAllString(x.agent.Log(), -1) {
		if i < 10 {
			x.t.Errorf("%s lacks privileges: %.500s", x.host.Name, line)
		}
	}
}

// Two boxes share what they have, from the first contact to the end, with agents that
// may do what docs/security.md lists, and no more.
func TestSharingWithLeastPrivilege(t *testing.T) {
	t.Parallel()
	bd := bed.New(t)
	boxes := newBoxes(t, bd, "alder", "birch")
	a, b := boxes[0], boxes[1]
	withKube(t, bd, boxes...)
	staff(t, boxes...)
	for _, x := range boxes {
		x.limit()
		x.configure("[log]\nlevel = \"debug\"\n") // some of what fails is tried again without a word
		x.start("--kubeconfig", limitedConfig)
	}
	t.Cleanup(func() { // a deadline that was missed has its cause here
		a.allowed()
		b.allowed()
	})
	p := &pair{bed: bd, a: a, b: b, aID: a.id(), bID: b.id()}
	a.awaitFC("appears", p.bID, reachable)
	b.awaitFC("appears", p.aID, reachable)
	p.join()
	node := a.awaitNode(p.bID, true)
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
	if node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		t.Errorf("the node has no kubelet API: %+v", node.Status.DaemonEndpoints)
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
  nodeSelector: {kubernetes.io/hostname: ` + p.bID + `}
  containers: [{name: web, image: example.invalid/web:1}]
  volumes: [{name: disk, hostPath: {path: /}}]
`)
	a.eventually("a pod that cannot go says so", func() error {
		if out := a.kubectl("get", "events", "-n", "shop", "--field-selector=involvedObject.name=disk"); !strings.Contains(out, workload.ReasonNotOffloadable) {
			return errors.New(out)
		}
		return nil
	})
	a.kubectl("delete", "pod", "-n", "shop", "disk", "--timeout=20s")
	a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=2")
	p.settled(-1) // which of them go, the ReplicaSet decides

	a.mustCLI("peers", "disconnect", p.bID, "--timeout", "30s")
	a.gone("/api/v1/nodes/" + p.bID)
	a.gone("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + p.bID)
	b.gone(prPath + "/" + p.aID)
	b.within(time.Minute, "nothing is left", func() error {
		spaces, err := list[metav1.PartialObjectMetadata](b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster)
		if err == nil && len(spaces) > 0 {
			err = fmt.Errorf("%d namespaces", len(spaces))
		}
		return err
	})
}
