//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/internal/bed"
)

const configuration = "/etc/liqo-agent/liqo-agent.toml"

// share shows what all of it is for: pods of one box that run on the other.
func (d *demo) share() {
	d.chapter("What it is for: box-a's pods run on box-b")
	if d.real {
		d.say("Nothing can be pulled here. box-b permits guests to use the image that it has, and some of its disk. Its agent is started again:")
		d.b.host.WriteFile(configuration, "[sharing]\nlocal_images = true\nstorage = \"1Gi\"\n")
		d.b.show("cat", configuration)
	}
	d.b.startAgent()
	d.a.wait(findDeadline, "box-a finds box-b again", d.a.foreign("box-b", "192.0.2.112"))
	if d.real {
		d.say("Both boxes get the rest of a cluster: kube-scheduler, kube-controller-manager, kubelet with containerd, kube-proxy, CoreDNS and local-path-provisioner.")
	} else {
		d.say("Both boxes get kube-scheduler, kube-controller-manager, and kwok, which plays a kubelet without containers: those need root on the machine.")
	}
	started := time.Now()
	var group sync.WaitGroup
	for _, x := range []*box{d.a, d.b} {
		group.Go(func() {
			if err := x.complete(d.ctx, d.real); err != nil {
				d.tb.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	d.say("They are there after %s.", since(started))
	started = time.Now()
	d.a.show("liqo-agent", "peers", "connect", "box-b")
	d.a.wait(joinDeadline, "box-b is a node of box-a", d.a.nodes(2))
	d.say("box-b is a node of box-a %s after the first key press, with half of what it has to spare (sharing.percentage):", since(started))
	d.a.show("kubectl", "get", "nodes")
	d.a.show("liqo-agent", "adverts", "list")
	d.a.show("kubectl", "create", "namespace", "shop")
	d.a.show("kubectl", "label", "namespace", "shop", "liqo.io/enabled=true")
	manifest := deployment
	if !d.real { // nobody pulls it, and box-b admits images of public registries
		manifest = strings.Replace(deployment, bed.Image, "nginx:1.29", 1)
	}
	d.a.host.WriteFile("/var/lib/web.yaml", manifest)
	d.a.show("cat", "/var/lib/web.yaml")
	started = time.Now()
	d.a.show("kubectl", "apply", "-f", "/var/lib/web.yaml")
	d.a.wait(joinDeadline, "the Deployment is ready", d.a.ready(6))
	d.say("Six pods are ready %s later, on both boxes:", since(started))
	d.a.show("kubectl", "get", "pods", "-n", "shop", "-o", "wide")
	d.say("What box-b sees: a namespace for box-a's, with a quota.")
	d.b.show("kubectl", "get", "pods,quota", "-A", "-l", "liqo.io/origin-cluster-id")
	d.b.show("liqo-agent", "peers", "show", "box-a")
	d.network()
	if d.real {
		d.application()
		d.storage()
	}

	d.chapter("box-a disconnects: its pods come home first")
	started = time.Now()
	d.a.show("liqo-agent", "peers", "disconnect", "box-b")
	d.a.wait(loseDeadline, "box-b's node is gone", d.a.nodes(1))
	d.a.wait(loseDeadline, "the Deployment is ready again", d.a.ready(6))
	d.say("Drained, removed and ready again at home after %s:", since(started))
	d.a.show("kubectl", "get", "pods", "-n", "shop", "-o", "wide")

	d.chapter("... and connects again, to leave the Deployment running on its neighbour")
	d.a.show("liqo-agent", "peers", "connect", "box-b")
	d.a.wait(joinDeadline, "box-b is a node of box-a again", d.a.nodes(2))
	d.a.show("kubectl", "rollout", "restart", "-n", "shop", "deployment/web")
	guests := 3
	if d.real {
		guests++ // the one with its data there
	}
	d.b.wait(joinDeadline, "pods of box-a run on box-b", d.b.hosts(guests))
	d.b.show("kubectl", "get", "pods", "-A", "-l", "liqo.io/origin-cluster-id")
	if d.real {
		d.kept()
	}
}

// network shows the network between the pods of both boxes.
func (d *demo) network() {
	d.chapter("Their pods have a network")
	d.say("Both boxes use 10.42.0.0/24. Each knows the other's pods by addresses that it has chosen itself:")
	d.a.wait(joinDeadline, "the networks are connected", func(ctx context.Context) error {
		out, err := d.a.host.Run(ctx, "liqo-agent", "network", "list", "-o", "json")
		if err != nil {
			return err
		}
		return says(out, `"state": "Connected"`)
	})
	d.a.show("liqo-agent", "network", "list")
	d.a.show("liqo-agent", "network", "probe", "box-b", "--count", "3", "--interval", "100ms")
	if !d.real {
		d.say("Pods of kwok have no containers, so nobody answers there. As root on the machine, this demo goes on with an application.")
	}
}

// complete starts the rest of a cluster on the box: with containers, or with kwok.
func (x *box) complete(ctx context.Context, real bool) error {
	if !real {
		return errors.Join(x.kube.StartKwok(ctx), x.kube.StartControllers(ctx))
	}
	if err := errors.Join(x.kube.StartControllers(ctx), x.kube.StartKubelet(ctx)); err != nil {
		return err
	}
	if _, err := x.kube.StartKubeProxy(ctx, bed.ProxyNFTables); err != nil {
		return err
	}
	if _, err := x.kube.StartLocalPath(ctx); err != nil {
		return err
	}
	return x.kube.StartCoreDNS(ctx, netip.MustParseAddr("192.0.2.53"))
}

// deployment spreads over all nodes that there are.
const deployment = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [pod-template-hash]}
      containers:
      - name: web
        image: ` + bed.Image + `
        command: [shop, web, "store:6379"]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        resources: {requests: {cpu: 100m, memory: 32Mi}}
`

// read reads an object of the box's API server.
func (x *box) read(ctx context.Context, path string, into any) error {
	body, err := x.kube.Request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// nodes is the condition that the box's cluster has so many nodes, all of them ready.
func (x *box) nodes(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		err := x.read(ctx, "/api/v1/nodes", &list)
		ready := 0
		for _, node := range list.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == "Ready" && c.Status == "True" {
					ready++
				}
			}
		}
		if err == nil && (len(list.Items) != want || ready != want) {
			err = fmt.Errorf("of %d nodes %d are ready", len(list.Items), ready)
		}
		return err
	}
}

// ready is the condition that so many pods of the Deployment are ready, and no others left.
func (x *box) ready(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		var web struct {
			Status struct{ Replicas, ReadyReplicas, UpdatedReplicas int }
		}
		err := x.read(ctx, "/apis/apps/v1/namespaces/shop/deployments/web", &web)
		if s := web.Status; err == nil && (s.Replicas != want || s.ReadyReplicas != want || s.UpdatedReplicas != want) {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	}
}

// hosts is the condition that so many pods of other clusters run on the box.
func (x *box) hosts(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Status struct{ Phase string }
			}
		}
		err := x.read(ctx, "/api/v1/pods?labelSelector=liqo.io/origin-cluster-id", &list)
		running := 0
		for _, pod := range list.Items {
			if pod.Status.Phase == "Running" {
				running++
			}
		}
		if err == nil && (running != want || len(list.Items) != want) {
			err = fmt.Errorf("of %d pods %d run", len(list.Items), running)
		}
		return err
	}
}
