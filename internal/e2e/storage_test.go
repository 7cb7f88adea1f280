package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/workload"
)

// databaseManifest has a database, and a pod at home behind a Service, whose status the test writes.
const databaseManifest = `apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: reader, namespace: shop}
spec: {selector: {app: reader}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: shop, labels: {app: reader}}
spec: {nodeName: alder, containers: [{name: reader, image: ` + bed.Image + `}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 1
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {liqo.io/type: virtual-node}
      terminationGracePeriodSeconds: 0
      containers:
      - name: db
        image: ` + bed.Image + `
        imagePullPolicy: Never
        command: [sh, -c, 'exec sleep 1000000']
        resources: {requests: {cpu: 10m, memory: 8Mi}}
        volumeMounts: [{name: data, mountPath: /data}]
`

// disks returns the directories in which a box keeps the data of a namespace.
func (x *box) disks(namespace string) []string {
	x.t.Helper()
	found, err := filepath.Glob(filepath.Join(x.host.Path(bed.LocalPathDir), "*_"+namespace+"_*"))
	if err != nil {
		x.t.Fatal(err)
	}
	return found
}

// database is a pair of clusters that is joined, of which B has a kubelet and offers storage, and
// A a namespace whose pods may run there.
type database struct {
	*pair
	t      *testing.T
	guests string // the namespace of B for that of A
}

const storageSettings = "[sharing]\nregistries = [\"bed.example.com\"]\nlocal_images = true\nstorage = \"1Gi\"\n"

func newDatabase(t *testing.T) *database {
	t.Helper()
	if !bed.RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	p := newPair(t, storageSettings)
	a, b := p.a, p.b
	if err := errors.Join(a.kube.StartControllers(t.Context()), b.kube.StartControllers(t.Context()), b.kube.StartKubelet(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := b.kube.StartLocalPath(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &database{pair: p, t: t, guests: workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")}
	p.share()
	d.offered()
	return d
}

// offered waits until pods with claims of the class are let on the node.
func (d *database) offered() {
	d.t.Helper()
	d.a.eventually("pods with claims of the class tolerate virtual nodes", func() error {
		if text := d.mounts("liqo"); !strings.Contains(text, workload.TaintNotAllowed) {
			return errors.New(text)
		}
		return nil
	})
}

// then runs a subtest, which begins with nothing in the namespace.
func (d *database) then(name string, test func(d *database)) {
	d.t.Run(name, func(t *testing.T) {
		q := *d
		q.t = t
		q.a.shell("kubectl delete -n shop statefulset,job,pod,pvc,service --all --force --grace-period=0")
		q.offered()
		test(&q)
	})
}

// mounts returns what the API server of A makes of a pod that mounts a claim of a storage class.
func (d *database) mounts(class string) string {
	d.t.Helper()
	claim := "probe-" + class
	d.a.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + claim + ", namespace: shop}\n" +
		"spec: {storageClassName: " + class + ", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n")
	text, err := d.a.kube.Request(d.t.Context(), "POST", "/api/v1/namespaces/shop/pods?dryRun=All", "application/json",
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"probe"},"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"`+claim+`"}}],"containers":[{"name":"c","image":"i"}]}}`))
	d.a.shell("kubectl delete pvc -n shop " + claim)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// runs waits for a pod of the database at B that is not the one with that UID.
func (d *database) runs(not string) (uid string) {
	d.t.Helper()
	d.a.eventually("the database runs", func() error {
		pod, _, err := get[corev1.Pod](d.a, "/api/v1/namespaces/shop/pods/db-0")
		if uid = string(pod.UID); err == nil && (!podReady(pod) || uid == not || pod.Spec.NodeName != d.b.asNode()) {
			err = fmt.Errorf("on %q it is %s: %+v", pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions)
		}
		return err
	})
	return uid
}

// in runs a script in the pod of the database.
func (d *database) in(script string) string {
	d.t.Helper()
	var out string
	d.a.eventually("kubectl exec", func() (err error) {
		out, err = d.a.tryShell("kubectl exec -n shop db-0 -- sh -c '" + script + "'")
		return err
	})
	return strings.TrimSpace(out)
}

// stored waits until the agent of B has the claim of A in a state.
func (d *database) stored(state string) {
	d.t.Helper()
	d.b.eventually("the claim is "+state, func() error {
		known, err := d.b.asks.Storage(d.t.Context())
		if err == nil && (len(known.Guests) != 1 || known.Guests[0].State != state || known.Guests[0].Claims != 1 || known.Guests[0].Bytes != 100<<20) {
			err = fmt.Errorf("%+v", known)
		}
		return err
	})
}

// TestStorage: the data of a StatefulSet at a provider survives its pod, the death of both
// agents and the end of the peering, and goes with its claim. Then it is moved home, and more
// happens to what another one wrote.
func TestStorage(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	a, b, guests := p.a, p.b, p.guests
	// Pods with claims of the class are let on the node, others are not.
	if text := p.mounts("others"); strings.Contains(text, workload.TaintNotAllowed) {
		t.Errorf("a pod with another claim is let on virtual nodes: %s", text)
	}

	a.apply(databaseManifest)
	same := func(when string) {
		t.Helper()
		if got := p.in("cat /data/rows"); got != "what was written" {
			t.Errorf("%s: %q", when, got)
		}
	}
	a.shell(`kubectl patch pod -n shop reader --subresource=status -p '{"status":{"phase":"Running","podIP":"10.42.0.77","podIPs":[{"ip":"10.42.0.77"}],"conditions":[{"type":"Ready","status":"True"}]}}'`)
	// others counts what there is in the namespace at B besides claims.
	others := func() map[string]int {
		t.Helper()
		pods, err1 := list[corev1.Pod](b, "/api/v1/namespaces/"+guests+"/pods")
		services, err2 := list[corev1.Service](b, "/api/v1/namespaces/"+guests+"/services")
		slices, err3 := list[discoveryv1.EndpointSlice](b, "/apis/discovery.k8s.io/v1/namespaces/"+guests+"/endpointslices?labelSelector=endpointslice.kubernetes.io%2Fmanaged-by%3Dliqo-agent")
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		return map[string]int{"pods": len(pods), "services": len(services), "endpointslices": len(slices)}
	}
	uid := p.runs("")
	// The agent of B chose its node for the claim, before the scheduler of B had a pod.
	claims, err := list[corev1.PersistentVolumeClaim](b, "/api/v1/namespaces/"+guests+"/persistentvolumeclaims")
	if err != nil || len(claims) != 1 || !slices.ContainsFunc(claims[0].ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == host.Manager && strings.Contains(f.FieldsV1.String(), "selected-node")
	}) {
		t.Errorf("B has the claims %+v (%v)", claims, err)
	}
	b.eventually("it has the Services", func() error {
		if got := others(); got["services"] != 2 || got["endpointslices"] != 1 {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
	p.in("echo what was written > /data/rows; sync")
	if dirs := b.disks(guests); len(dirs) != 1 {
		t.Errorf("B keeps data in %v", dirs)
	} else if rows, err := os.ReadFile(filepath.Join(dirs[0], "rows")); err != nil || string(rows) != "what was written\n" {
		t.Errorf("B's disk has %q, %v", rows, err)
	}
	a.shell("kubectl delete pod -n shop db-0 --wait=false")
	uid = p.runs(uid)
	same("after its pod was deleted")
	for _, x := range []*box{a, b} {
		if err := x.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		x.start()
	}
	a.awaitNode(b.asNode(), true)
	a.shell("kubectl delete pod -n shop db-0 --wait=false")
	uid = p.runs(uid)
	same("after both agents were killed")

	// The two part, and find each other again.
	a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
	p.stored(control.StorageRetained)
	if own, err := cliJSON[control.Storage](a, "storage", "list"); err != nil || len(own.Own) != 1 || own.Own[0].State != "Parted" || own.Own[0].Claim != "data-db-0" {
		t.Errorf("%+v, %v", own, err)
	}
	b.eventually("nothing else is", func() error {
		if got := others(); got["pods"]+got["services"]+got["endpointslices"] > 0 {
			return fmt.Errorf("%v are left", got)
		}
		return nil
	})
	p.join()
	p.runs(uid)
	same("after the two were apart")

	// With the claim, the data goes.
	a.shell("kubectl delete statefulset -n shop db; kubectl delete pvc -n shop data-db-0 --wait=false")
	for _, x := range []*box{a, b} {
		x.eventually("nothing is kept", func() error {
			known, err := x.asks.Storage(t.Context())
			if err == nil && len(known.Own)+len(known.Guests) > 0 {
				err = fmt.Errorf("%+v", known)
			}
			return err
		})
	}
	b.eventually("its disk is clean", func() error {
		if dirs := b.disks(guests); len(dirs) > 0 {
			return fmt.Errorf("there is %v", dirs)
		}
		return nil
	})

	// Without a provider and claims there is no class.
	a.shell("kubectl delete pvc -n shop --all")
	a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
	a.eventually("the storage class is gone", func() error {
		classes, err := list[storagev1.StorageClass](a, "/apis/storage.k8s.io/v1/storageclasses")
		if err == nil && len(classes) > 0 {
			err = fmt.Errorf("there is %s", classes[0].Name)
		}
		return err
	})
	p.share()
	p.then("moves home", (*database).movesHome)
	p.then("survives", (*database).survives)
}
