//go:build linux

package integration

import (
	"context"
	"testing"

	"liqo.io/agent/internal/bed"
)

// localPath is the class of K3s, and provisioned a volume that its provisioner made, in a directory of the box.
const (
	localPath = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local-path, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
`
	provisioned = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pvc-1, annotations: {pv.kubernetes.io/provisioned-by: rancher.io/local-path}}
spec:
  storageClassName: local-path
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/lib}
`
	// provisioner is a pod with the label of that provisioner, in a cluster without controllers.
	provisioner = `apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: provisioner, namespace: default, labels: {app: local-path-provisioner}}
spec: {nodeName: alder, automountServiceAccountToken: false, containers: [{name: provisioner, image: x}]}
`
	// offering is what the agent keeps of a provider with storage, and ours the class that it keeps then.
	offering = `apiVersion: sharing.liqo.io/v1alpha1
kind: Advertisement
metadata: {name: 83d0f353-3141-44ad-bc31-9c4520be089f}
spec:
  clusterId: 83d0f353-3141-44ad-bc31-9c4520be089f
  resourceQuota: {hard: {cpu: "1", storage: 10Gi}}
  timestamp: "2026-11-25T12:00:00Z"
  timeToLive: "2036-11-25T12:00:00Z"
`
	ours = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: liqo, labels: {app.kubernetes.io/managed-by: liqo-agent}}
provisioner: storage.liqo.io
volumeBindingMode: WaitForFirstConsumer
`
)

// storage is about a cluster that offers storage, or has some at a provider. It ends with neither.
func storage(ctx context.Context, t *testing.T, x *box, kube *bed.Kube) {
	const offers = "[sharing]\nstorage = \"1Gi\"\n"
	apply := func(manifests string) {
		t.Helper()
		if err := kube.Apply(ctx, manifests); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := kube.Kubectl(ctx, args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	x.eventually("Advertisements are served", func() error { _, err := kube.Kubectl(ctx, "get", "advertisements"); return err })
	x.host.WriteFile(configPath, offers)
	r := x.finds("agent-stopped", "storage-no-class")
	says(t, r, "storage", "this cluster has no default storage class")
	apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: now}\nprovisioner: example.com/now\nvolumeBindingMode: Immediate\n")
	x.host.WriteFile(configPath, offers+"guest_storage_class = \"now\"\n")
	x.finds("agent-stopped", "storage-class-immediate")
	x.host.WriteFile(configPath, offers)
	apply(localPath)
	x.finds("agent-stopped", "storage-no-provisioner")
	apply(provisioner)
	kubectl("patch", "pod", "-n", "default", "provisioner", "--subresource=status", "--type=merge", `-p={"status":{"phase":"Running"}}`)
	x.finds("agent-stopped")
	kubectl("delete", "pod", "-n", "default", "provisioner", "--force", "--grace-period=0")
	apply(provisioned)
	r = x.finds("agent-stopped")
	says(t, r, "storage", "1Gi are offered to peers")
	x.host.WriteFile(configPath, "[sharing]\nstorage = \"500Ti\"\n")
	x.finds("agent-stopped", "storage-disk-small")

	x.host.WriteFile(configPath, "")
	says(t, x.report(), "storage", "no storage is offered")
	apply(ours)
	x.finds("agent-stopped", "storage-class-stale")
	apply(offering)
	kubectl("patch", "advertisement", "83d0f353-3141-44ad-bc31-9c4520be089f", "--subresource=status", "--type=merge", `-p={"status":{"advertisementStatus":"Accepted"}}`)
	x.finds("agent-stopped")
	kubectl("delete", "storageclass", "liqo")
	x.finds("agent-stopped", "storage-class-missing")
	apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: liqo}\nprovisioner: example.com/now\n")
	x.finds("agent-stopped", "storage-class-taken")
	kubectl("delete", "storageclasses,advertisements", "--all")
}
