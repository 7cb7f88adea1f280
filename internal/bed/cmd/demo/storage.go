//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"

	"liqo.io/agent/internal/bed"
)

// notes is a program with an SQLite database, which notes where it was started.
const notes = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: notes, namespace: shop}
spec:
  serviceName: notes
  selector: {matchLabels: {app: notes}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 200Mi}}}
  template:
    metadata: {labels: {app: notes}}
    spec:
      nodeSelector: {kubernetes.io/hostname: liqo-box-b}
      terminationGracePeriodSeconds: 0
      containers:
      - name: notes
        image: ` + bed.Image + `
        command: [sh, -c, 'shop rows /data/notes.db "started on $NODE" && exec sleep 1000000']
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        volumeMounts: [{name: data, mountPath: /data}]
`

// storage shows data that is kept next door, and outlives its pod.
func (d *demo) storage() {
	d.say("Its data can be next door, too: box-b offers 1Gi of its disk (sharing.storage), so box-a has a storage class liqo. This program has an SQLite database:")
	d.a.host.WriteFile("/var/lib/notes.yaml", notes)
	d.a.show("cat", "/var/lib/notes.yaml")
	d.a.show("kubectl", "apply", "-f", "/var/lib/notes.yaml")
	d.a.wait(joinDeadline, "the program has written a row", d.a.wrote(1))
	d.a.show("kubectl", "exec", "-n", "shop", "notes-0", "--", "shop", "rows", "/data/notes.db", "somebody was here")
	d.say("The claim, and the volume that stands for box-b's disk:")
	d.a.show("kubectl", "get", "pvc,pv", "-n", "shop")
	d.a.show("liqo-agent", "storage", "list")
	d.say("The pod is deleted. The next one finds the rows:")
	d.a.show("kubectl", "delete", "pod", "-n", "shop", "notes-0")
	d.a.wait(joinDeadline, "the next pod has written a row", d.a.wrote(3))
	d.a.show("kubectl", "logs", "-n", "shop", "notes-0")
}

// kept shows that the data is still there after the boxes parted, and that it goes with its claim.
func (d *demo) kept() {
	d.say("The data was kept on box-b meanwhile:")
	d.a.wait(joinDeadline, "the program runs again", d.a.wrote(4))
	d.a.show("kubectl", "logs", "-n", "shop", "notes-0")
	d.say("It goes with its claim, and only then:")
	d.a.show("kubectl", "delete", "-n", "shop", "statefulset/notes", "pvc/data-notes-0")
	d.b.wait(joinDeadline, "box-b keeps nothing of box-a", d.b.keepsNothing())
	d.b.show("liqo-agent", "storage", "list")
}

// wrote is the condition that the program runs, and its database has so many rows.
func (x *box) wrote(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "kubectl", "logs", "-n", "shop", "notes-0")
		if err == nil && strings.Count(out, "\n") != want {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	}
}

// keepsNothing is the condition that the box has no claims of others.
func (x *box) keepsNothing() func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "liqo-agent", "storage", "list", "-o", "json")
		if err != nil {
			return err
		}
		return says(strings.Join(strings.Fields(out), ""), `"guests":[]`)
	}
}
