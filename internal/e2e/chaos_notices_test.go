//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// What TestChaos checks can fail: each time something is broken that the agents do not mend, or not at once, and noticed.
// make chaos SEEDS=checks runs it.
func TestChaosNotices(t *testing.T) {
	if os.Getenv("LIQO_CHAOS_SEEDS") != "checks" {
		t.Skip("it takes minutes; make chaos SEEDS=checks runs it")
	}
	c := newChaos(t, 2)
	x, y := c.boxes[0], c.boxes[1]
	stranger := c.inventory()
	c.joinAll()
	joined, before := c.inventory(), c.resources()
	// Another error is not the one that is to be noticed: pods come and go for a moment after much of this.
	notices := func(what, says string, broken func(), check func() error, mend func()) {
		t.Helper()
		broken()
		ctx, cancel := context.WithTimeout(t.Context(), 2*quietFor)
		defer cancel()
		var noticed error
		if bed.Poll(ctx, func() error {
			if noticed = check(); noticed == nil || !strings.Contains(noticed.Error(), says) {
				return errors.New("not noticed yet")
			}
			return nil
		}) != nil {
			t.Errorf("not noticed: %s: %v", what, noticed)
		}
		t.Logf("%s: %.300v", what, noticed)
		mend()
	}
	run := func(x *box, script string) func() { return func() { x.shell(script) } }
	apply := func(x *box, manifest string) func() { return func() { x.apply(manifest) } }
	nothing := func() {}
	// It stays, whatever anybody does about it.
	const stays = "finalizers: [example.com/stays]"
	release := func(x *box, object string) func() {
		return run(x, "kubectl patch "+object+` --type=merge -p '{"metadata":{"finalizers":null}}'; kubectl delete --ignore-not-found `+object)
	}
	guests := workload.Namespace("liqo", peer.ClusterID(c.ids[0]), "shop")

	is := choice{0, 1, connect}
	notices("a decision is not what it was", "a person at alder decided", func() { c.decided[is] = false }, c.asDecided, func() { c.decided[is] = true })
	notices("a node that nobody asked for", "has 3 nodes", apply(x, "apiVersion: v1\nkind: Node\nmetadata: {name: stray, labels: {liqo.io/type: virtual-node}}\n"), c.asDecided, run(x, "kubectl delete node stray"))
	notices("pods are not where they are to be", "is Pending", run(x, "kubectl drain "+y.asNode()+" --ignore-daemonsets --force --disable-eviction --timeout=1s || true"), c.asDecided, run(x, "kubectl uncordon "+y.asNode()))
	c.eventually("all is well again", c.asDecided)
	// Of somebody else, or the ReplicaSet would take it for its own, and delete it.
	notices("a pod too many", "has 5 pods", run(x, `kubectl apply -f - <<EOF
{apiVersion: v1, kind: Pod, metadata: {name: stray, namespace: shop, labels: {app: spread}, ownerReferences: [{apiVersion: v1, kind: ConfigMap,
 name: kube-root-ca.crt, uid: $(kubectl get -n shop configmap kube-root-ca.crt -o jsonpath={.metadata.uid}), controller: true}]},
 spec: {nodeName: `+x.host.Name+`, containers: [{name: a, image: a}]}}
EOF`), c.asDecided, run(x, "kubectl delete pod -n shop stray"))
	notices("a guest that stands for no pod", "at the provider", apply(y, "apiVersion: v1\nkind: Pod\nmetadata: {name: stray, namespace: "+guests+", labels: {"+workload.LabelOriginCluster+": "+c.ids[0]+"}, "+stays+"}\n"+
		"spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 1m, memory: 1Mi}}}]}\n"), c.asDecided, release(y, "-n "+guests+" pod/stray"))
	c.eventually("all is well again", c.asDecided)

	wrong := func() error {
		c.packets.mu.Lock()
		defer c.packets.mu.Unlock()
		return errors.New(strings.Join(c.packets.found, "\n"))
	}
	c.packets.watch()
	notices("the pods of a box are mute", "birch asks", func() { c.check(c.packets.servers[0].Close()) }, c.packets.answered, nothing)
	notices("and are ready all the same", "birch: 241.", nothing, wrong, func() { c.packets.serve(0) })
	astray := "table ip stray { chain astray { type nat hook prerouting priority -100; ip daddr 10.42.0.0/24 dnat to 10.42.0.77; }; }"
	notices("another pod answers", "10.42.0.77 of alder answered", func() { c.check(c.packets.pods[0].Run("nft '" + astray + "'")) }, c.packets.answered, func() { c.check(c.packets.pods[0].Run("nft delete table ip stray")) })
	notices("a guest reaches what it may not", "reached 10.42.0.2 of alder", run(x, "kubectl label namespace private "+workload.LabelEnabled+"=true"), wrong, run(x, "kubectl label namespace private "+workload.LabelEnabled+"-"))
	notices("nobody leads to the pods of a Service", "asks by the Service on-birch", func() {
		c.check(c.proxies[x].Kill())
		x.shell("nft delete table ip kube-proxy")
	}, c.packets.answered, func() { c.check(c.directs(x)) })
	c.packets.stop()
	c.eventually("requests to Services are answered", c.packets.answered)

	pods, err := c.podsNow()
	c.check(err)
	notices("a pod at the provider was replaced", "it is gone: birch", run(y, "kubectl delete pod --wait=false -n "+guests+" $(kubectl get pods -n "+guests+" -o name | head -1 | cut -d/ -f2)"), func() error { return c.survived(pods) }, nothing)
	c.eventually("all is well again", c.asDecided)

	c.remember()
	notices("a row of the history is gone", "a row that there never was", func() { c.rows[x]["a row that there never was"] = 1 }, c.kept, func() { delete(c.rows, x) })
	quiet, began := c.silence(), time.Now()
	notices("somebody makes the agents write", "alder", nothing, func() error {
		err := quiet()
		if time.Since(began) < quietFor+10*time.Second && err != nil {
			x.shell("kubectl delete secret -n liqo liqo-peer-" + c.ids[1])
			return nil // before, it is an error anyway
		}
		return err
	}, nothing)
	c.eventually("all is well again", c.asDecided)
	c.eventually("all objects are there as before", func() error { return c.same(joined, "") })

	notices("an object too many", "more: alder: ConfigMap shop stray", run(x, "kubectl create configmap -n shop stray"), func() error { return c.same(joined, "") }, run(x, "kubectl delete configmap -n shop stray"))
	notices("an object is gone", "gone: alder: Service shop spread", run(x, "kubectl delete service -n shop spread"), func() error { return c.same(joined, "") }, run(x, "kubectl create service clusterip -n shop spread --tcp=80"))
	notices("an object is another one", "stray", run(x, "kubectl label namespace shop liqo.io/type=stray"), func() error { return c.same(joined, "") }, run(x, "kubectl label namespace shop liqo.io/type-"))

	wire := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return (&pair{bed: c.bed, a: x, b: y, aID: c.ids[0], bID: c.ids[1]}).wire(ctx)
	}
	// Who is to put it right has to call the other one. Agents that are stopped would refuse the edit.
	cable := y.host.Link("eth0")
	for _, edited := range []string{"the offer", "the request"} {
		notices(edited+" was edited", edited+" is not put right", cable.Unplug, wire, cable.Plug)
		c.eventually("all is well again", c.asDecided)
	}
	hasty := time.Now()
	notices("an agent writes too often", "301 times create /api/v1/namespaces/shop/events", run(x, "for i in {1..301}; do echo \"{apiVersion: v1, kind: Event, metadata: {name: stray-$i, namespace: shop}, "+
		"involvedObject: {kind: Namespace, name: shop, namespace: shop}, reason: Stray}\"; echo ---; done | kubectl --kubeconfig "+x.mustStatus().Kubernetes.Kubeconfig+" create --validate=false -f -"),
		func() error { return c.restrained(hasty) }, run(x, "kubectl delete events -n shop --field-selector reason=Stray"))
	const leases = "/namespaces/kube-node-lease/"
	notices("a right is missing", leases, run(x, "kubectl delete rolebinding -n kube-node-lease liqo-agent"), func() error {
		events, err := x.kube.Audit()
		c.check(err)
		return errors.New(strings.Join(lacking(events), "\n"))
	}, func() { x.mustCLI("rbac", "--apply") })
	x.deprived = leases
	c.eventually("all is well again", c.asDecided)

	var open []net.Conn
	notices("open files", "files", func() {
		for range 100 {
			conn, err := x.host.DialContext(t.Context(), "unix", socketPath)
			c.check(err)
			open = append(open, conn)
		}
	}, func() error { return c.grown(before) }, func() {
		for _, conn := range open {
			conn.Close()
		}
	})

	c.partAll()
	c.eventually("nothing is left", func() error { return errors.Join(c.same(stranger, " liqo:peer:"), c.noNetwork()) })
	notices("a guest namespace is left", "namespace stray is left", apply(y, "apiVersion: v1\nkind: Namespace\nmetadata: {name: stray, labels: {"+workload.LabelOriginCluster+": "+c.ids[0]+"}, "+stays+"}\n"), c.asDecided, release(y, "namespace/stray"))
	notices("an offer is left", "the offer is left", apply(x, "apiVersion: sharing.liqo.io/v1alpha1\nkind: Advertisement\nmetadata: {name: "+c.ids[1]+", "+stays+"}\n"+
		"spec: {clusterId: "+c.ids[1]+", resourceQuota: {hard: {cpu: \"1\"}}, timestamp: \"2026-01-01T00:00:00Z\", timeToLive: \"2036-01-01T00:00:00Z\"}\n"), c.asDecided, release(x, "advertisement/"+c.ids[1]))
	for what, script := range map[string][2]string{
		"device": {"ip link add liqo9 type bridge", "ip link delete liqo9"},
		"table":  {"nft add table ip liqo-stray", "nft delete table ip liqo-stray"},
		"route":  {"ip route add 241.9.0.0/16 via 10.42.0.1", "ip route delete 241.9.0.0/16"},
	} {
		notices("a "+what+" is left", "alder has", run(x, script[0]), c.noNetwork, run(x, script[1]))
	}
	notices("an agent ends by itself", "ended by itself", func() { c.check(x.agent.Kill()) }, func() error {
		if c.raise(); len(c.ended) == 0 {
			return nil
		}
		return fmt.Errorf("%s", c.ended)
	}, nothing)
}
