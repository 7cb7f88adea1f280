//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/internal/bed"
)

// store keeps the state of the application, on the box itself.
const store = `apiVersion: v1
kind: Service
metadata: {name: store, namespace: shop}
spec: {selector: {app: store}, ports: [{port: 6379}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: shop}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      nodeSelector: {kubernetes.io/hostname: box-a}
      containers:
      - {name: store, image: ` + bed.Image + `, command: [shop, store]}
`

// application shows parts of one application that run on both boxes, and what a pulled cable does to it.
func (d *demo) application() {
	d.chapter("An application of several parts, on both boxes")
	d.say("The web servers count visits in a store, which stays at home:")
	d.a.host.WriteFile("/var/lib/store.yaml", store)
	d.a.show("cat", "/var/lib/store.yaml")
	d.a.show("kubectl", "apply", "-f", "/var/lib/store.yaml")
	d.a.wait(loseDeadline, "requests are answered on both boxes", d.a.answered("box-a", "liqo-box-b"))
	d.say("One Service leads to the web servers on both boxes, and those on box-b find the store by its name. From a pod of box-a:")
	d.a.show("kubectl", "exec", "-n", "shop", "store-0", "--", "shop", "ask", "-count", "10", "http://web.shop")
	d.say("The same name works in a pod that runs on box-b:")
	var away string
	d.a.wait(joinDeadline, "a pod runs on box-b", func(ctx context.Context) (err error) {
		away, err = d.a.podOn(ctx, "liqo-box-b")
		return err
	})
	d.a.show("kubectl", "exec", "-n", "shop", away, "--", "shop", "ask", "-count", "4", "http://web.shop")

	d.chapter("Somebody pulls box-b's cable")
	d.b.host.Link("eth0").Unplug()
	started := time.Now()
	d.a.wait(loseDeadline, "requests are answered at home only", d.a.answered("box-a"))
	d.say("After %s, the Service is without the pods on box-b, and every request is answered at home:", since(started))
	d.a.show("kubectl", "exec", "-n", "shop", "store-0", "--", "shop", "ask", "-count", "6", "http://web.shop")
	d.a.show("liqo-agent", "network", "list")
	d.b.host.Link("eth0").Plug()
	started = time.Now()
	d.a.wait(loseDeadline, "requests are answered on both boxes again", d.a.answered("box-a", "liqo-box-b"))
	d.say("%s after the cable is back, so are the pods on box-b. None of them was started again:", since(started))
	d.a.show("kubectl", "exec", "-n", "shop", "store-0", "--", "shop", "ask", "-count", "10", "http://web.shop")
	d.a.show("kubectl", "get", "pods", "-n", "shop", "-o", "wide")
}

// answered is the condition that twenty requests in a row are answered, by pods on all of these nodes, and on no others.
func (x *box) answered(nodes ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "kubectl", "exec", "-n", "shop", "store-0", "--", "shop", "ask", "-count", "20", "http://web.shop")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		var by []string
		for line := range strings.Lines(strings.TrimSpace(out)) {
			line = strings.TrimSpace(line)
			by = append(by, line[strings.LastIndex(line, " ")+1:])
		}
		slices.Sort(by)
		if by = slices.Compact(by); !slices.Equal(by, nodes) {
			err = fmt.Errorf("%v answer: %s", by, out)
		}
		return err
	}
}

// podOn returns a pod of the Deployment that is on a node.
func (x *box) podOn(ctx context.Context, node string) (string, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	if err := x.read(ctx, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb", &list); err != nil {
		return "", err
	}
	for _, pod := range list.Items {
		if pod.Spec.NodeName == node {
			return pod.Metadata.Name, nil
		}
	}
	return "", errors.New("there is none")
}
