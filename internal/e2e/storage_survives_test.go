package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/sharing/volumes"
)

// survives: what a pod wrote at a provider is there, byte by byte, whatever happens to the pod, its node, the
// provider's box, the link and the consumer, until the provider itself removes it.
func (d *database) survives() {
	t, a, b := d.t, d.a, d.b
	a.apply(databaseManifest)
	uid := d.runs("")
	sum, _, _ := strings.Cut(d.in("dd if=/dev/urandom of=/data/rows bs=65536 count=64 2>/dev/null; sync; sha256sum /data/rows"), " ")
	// onDisk compares what B's disk has.
	onDisk := func(when string) {
		t.Helper()
		dirs := b.disks(d.guests)
		if len(dirs) != 1 {
			t.Fatalf("%s: B keeps data in %v", when, dirs)
		}
		rows, err := os.ReadFile(filepath.Join(dirs[0], "rows"))
		if got := fmt.Sprintf("%x", sha256.Sum256(rows)); err != nil || got != sum {
			t.Errorf("%s: B's disk has %s, want %s (%v)", when, got, sum, err)
		}
	}
	same := func(when string) {
		t.Helper()
		if got, _, _ := strings.Cut(d.in("sha256sum /data/rows"), " "); got != sum {
			t.Errorf("%s: %s, want %s", when, got, sum)
		}
		onDisk(when)
	}
	same("at first")

	b.shell("kubectl delete pod -n " + d.guests + " db-0 --force --grace-period=0")
	uid = d.runs(uid)
	same("after the provider killed its pod")

	// Its node is cordoned: the pod waits, because its data is nowhere else.
	a.shell("kubectl cordon " + b.asNode() + "; kubectl delete pod -n shop db-0 --wait=false")
	a.eventually("the pod waits for the node", func() error {
		pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/db-0")
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if string(pod.UID) != uid && c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("on %q: %+v", pod.Spec.NodeName, pod.Status.Conditions)
	})
	onDisk("while the node is cordoned")
	a.shell("kubectl uncordon " + b.asNode())
	uid = d.runs(uid)
	same("after the node was cordoned")

	if err := errors.Join(b.agent.Kill(), b.kube.Kill(), b.kube.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.start()
	d.works()
	a.awaitNode(b.asNode(), true)
	a.shell("kubectl delete pod -n shop db-0 --wait=false")
	uid = d.runs(uid)
	same("after the provider was restarted")

	// B is away for longer than lost_after: both give up the peering.
	for _, x := range []*box{a, b} {
		x.configure("[discovery]\ncheck_interval = \"1s\"\nlost_after = \"5s\"\n" + storageSettings)
		x.reload()
	}
	b.host.Link("eth0").Unplug()
	a.gone(advPath + "/" + d.bID)
	b.gone(prPath + "/" + d.aID)
	d.stored(control.StorageRetained)
	// Until its node is drained, A says of B only that it does not answer.
	if own, err := cliJSON[control.Storage](a, "storage", "list"); err != nil || len(own.Own) != 1 || own.Own[0].State != string(volumes.StateParted) && own.Own[0].State != string(volumes.StateUnknown) {
		t.Errorf("A knows of %+v, %v", own, err)
	}
	onDisk("while the peering is given up")
	b.host.Link("eth0").Plug()
	d.works()
	d.runs("")
	same("after lost_after had passed")
	d.stored(control.StorageInUse)

	// The consumer goes back to the factory, and forgets that it has data anywhere.
	a.reset("--identity")
	d.stored(control.StorageRetained)
	onDisk("after the consumer was reset")
	b.mustCLI("storage", "reclaim", d.aID, "--yes")
	b.eventually("its disk is clean", func() error {
		if dirs := b.disks(d.guests); len(dirs) > 0 {
			return fmt.Errorf("there is %v", dirs)
		}
		return nil
	})
}
