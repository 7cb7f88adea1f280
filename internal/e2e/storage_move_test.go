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

// TestStorageMovesHome: the manifests in the documentation move the data of a claim home.
func TestStorageMovesHome(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	a, b := p.a, p.b
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
	p.runs("")
	p.in("mkdir -p /data/log; dd if=/dev/urandom of=/data/rows bs=65536 count=32 2>/dev/null; echo a line > /data/log/one; sync")
	a.shell("kubectl scale -n shop statefulset/db --replicas=0; kubectl wait -n shop --for=delete pod/db-0 --timeout=100s")

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
	there, here := b.disks(p.guests), a.disks("shop")
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
		if dirs := b.disks(p.guests); len(dirs) > 0 {
			return fmt.Errorf("there is %v", dirs)
		}
		return nil
	})
}
