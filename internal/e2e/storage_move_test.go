package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"liqo.io/agent/internal/bed"
)

// documented returns the first block of YAML below a heading of a document.
func documented(t *testing.T, document, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, begun := strings.Cut(below, "```yaml\n")
	block, _, ended := strings.Cut(block, "```\n")
	if !found || !begun || !ended {
		t.Fatalf("docs/%s has no YAML below %q", document, heading)
	}
	return block
}

// notesManifest has a claim of the agent's class whose pod runs at home.
const notesManifest = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: notes, namespace: shop}
spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: notes, namespace: shop}
spec:
  nodeSelector: {kubernetes.io/hostname: alder}
  terminationGracePeriodSeconds: 0
  containers:
  - name: notes
    image: ` + bed.Image + `
    imagePullPolicy: Never
    command: [sh, -c, 'echo a note > /data/note && exec sleep 1000000']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: notes}}]
`

// movesHome: the manifests in the documentation move the data of a claim home. Before that, the claim
// grows, and afterwards the class has one at home.
func (d *database) movesHome() {
	t, a, b := d.t, d.a, d.b
	if err := a.kube.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.kube.StartLocalPath(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*box{a, b} {
		x.likeK3s(bed.ProxyNFTables)
	}
	if err := a.kube.StartCoreDNS(t.Context(), a.addr); err != nil {
		t.Fatal(err)
	}
	a.apply(databaseManifest)
	d.runs("")
	d.in("mkdir -p /data/log; dd if=/dev/urandom of=/data/rows bs=65536 count=32 2>/dev/null; echo a line > /data/log/one; sync")
	// Nobody expands what rancher's provisioner makes, so the test does.
	b.shell(`kubectl patch storageclass local-path -p '{"allowVolumeExpansion":true}'`)
	a.shell(`kubectl patch pvc -n shop data-db-0 -p '{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}'`)
	b.eventually("its claim asks for more", func() error {
		out, err := b.tryShell("kubectl get pvc -n " + d.guests + " -o jsonpath={.items[*].spec.resources.requests.storage}")
		if err == nil && out != "200Mi" {
			err = errors.New(out)
		}
		return err
	})
	b.shell("kubectl get pvc -n " + d.guests + ` -o name | xargs kubectl patch -n ` + d.guests + ` --subresource=status -p '{"status":{"capacity":{"storage":"200Mi"}}}'`)
	a.shell("kubectl wait -n shop --for=jsonpath={.status.capacity.storage}=200Mi pvc/data-db-0 --timeout=300s")
	a.shell("kubectl scale -n shop statefulset/db --replicas=0; kubectl wait -n shop --for=delete pod/db-0 --timeout=300s")

	manifests := documented(t, "sharing.md", "### Moving data home")
	a.apply(strings.ReplaceAll(manifests, "docker.io/library/busybox:1.37", bed.Image))
	a.eventually("the Job completes", func() error {
		job, _, err := get[batchv1.Job](a, "/apis/batch/v1/namespaces/shop/jobs/take")
		if err == nil && job.Status.Succeeded != 1 {
			out, logErr := a.tryShell("kubectl get pods -n shop -o wide; kubectl logs -n shop job/take; kubectl describe pvc -n shop data-home | tail -5")
			err = errors.Join(fmt.Errorf("%+v\n%s", job.Status, out), logErr)
		}
		return err
	})
	there, here := b.disks(d.guests), a.disks("shop")
	if len(there) != 1 || len(here) != 1 {
		t.Fatalf("there are %v and %v", there, here)
	}
	for _, name := range []string{"rows", "log/one"} {
		want, err := os.ReadFile(filepath.Join(there[0], name))
		got, err2 := os.ReadFile(filepath.Join(here[0], name))
		if err := errors.Join(err, err2); err != nil || len(want) == 0 || string(got) != string(want) {
			t.Errorf("%s: %d bytes at home, %d next door, %v", name, len(got), len(want), err)
		}
	}

	// What the document says goes then.
	a.shell("kubectl delete pod -n shop give --wait=false; kubectl delete pvc -n shop data-db-0 --wait=false")
	b.eventually("its disk is clean", func() error {
		if dirs := b.disks(d.guests); len(dirs) > 0 {
			return fmt.Errorf("there is %v", dirs)
		}
		return nil
	})

	a.apply(notesManifest)
	a.shell("kubectl wait -n shop --for=condition=Ready pod/notes --timeout=300s")
	a.eventually("the volume is the claim's, with the policy of its class", func() error {
		claims, err := a.tryShell("kubectl get pvc -n shop -o name")
		policy, err2 := a.tryShell("kubectl get pv $(kubectl get pvc -n shop notes -o jsonpath={.spec.volumeName}) -o jsonpath={.spec.persistentVolumeReclaimPolicy}")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if strings.Contains(claims, "/liqo-") || policy != "Delete" {
			return fmt.Errorf("policy %q, claims %q", policy, claims)
		}
		return nil
	})
	a.shell("kubectl delete -n shop pod/notes pvc/notes")
}
