//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/workload"
)

const (
	shop    = "shop" // the namespace of the consumer that may use others
	twoKube = "two boxes with real API servers, schedulers and controllers, kwok as kubelet, 2 cores for all"
)

// pair is a consumer x and a provider y, with what was seen of their pods.
type pair struct {
	*scenarioRun
	bed      *bed.Bed
	x, y     *box
	xID, yID string
	mine     *podWatch // of the consumer: namespace shop
	theirs   *podWatch // of the provider: the consumer's
}

// newPair starts two whole clusters with agents that know each other. The provider
// has room for 2,500 pods and offers all of it; more is the consumer's
// configuration.
func (r *scenarioRun) newPair(more string) *pair {
	p := r.newClusters(func(k *bed.Kube) error { return k.StartKwok(r.Context()) })
	const room = `{"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "2500"}`
	p.y.request("PATCH", "/api/v1/nodes/b/status", `{"status": {"capacity": `+room+`, "allocatable": `+room+`}}`)
	p.startAgents(more, "[sharing]\npercentage = 100\n")
	return p
}

// newClusters starts two clusters with controllers and what runs their pods, without agents.
func (r *scenarioRun) newClusters(kubelet func(*bed.Kube) error) *pair {
	b := bed.New(r)
	p := &pair{scenarioRun: r, bed: b, x: r.box(b, "a", "10.77.0.1/16"), y: r.box(b, "b", "10.77.0.2/16")}
	for i, k := range b.StartKubes(r.Context(), p.x.host, p.y.host) {
		[]*box{p.x, p.y}[i].kube = k
	}
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i, o := range []*box{p.x, p.y} {
		group.Go(func() { errs[i] = errors.Join(kubelet(o.kube), o.kube.StartControllers(r.Context())) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		r.Fatalf("%v", err)
	}
	return p
}

// startAgents starts the agents with their configurations, and waits until they know each other.
func (p *pair) startAgents(consumer, provider string) {
	p.x.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", consumer)
	p.y.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", provider)
	p.x.start()
	p.y.start()
	for _, o := range []*box{p.x, p.y} {
		o.when(60*time.Second, "its neighbour", func(all map[string]foreign) bool { return len(all) == 1 })
	}
	p.xID, p.yID = p.x.mustStatus().Identity.ClusterID, p.y.mustStatus().Identity.ClusterID
}

// share has the consumer use the provider, waits for the node and watches the pods.
func (p *pair) share() {
	p.y.cli("peers", "accept", p.xID, "--yes")
	p.x.cli("peers", "connect", p.yID, "--yes")
	p.await(time.Minute, "the provider's node", func() error { return p.x.virtualNodes(1) })
	p.watch()
}

// watch opens the namespace and watches the pods.
func (p *pair) watch() {
	p.x.request("POST", "/api/v1/namespaces", `{"metadata": {"name": "`+shop+`", "labels": {"`+workload.LabelEnabled+`": "true"}}}`)
	p.await(time.Minute, "the namespace's service account", func() error {
		_, err := p.x.kube.Request(p.Context(), "GET", "/api/v1/namespaces/"+shop+"/serviceaccounts/default", "", nil)
		return err
	})
	p.mine = p.watchPods(p.x.kube, "fieldSelector=metadata.namespace%3D"+shop)
	p.theirs = p.watchPods(p.y.kube, "labelSelector="+workload.LabelOriginCluster+"%3D"+p.xID)
}

// virtualNodes returns an error unless there are so many virtual nodes, and all of them are ready.
func (x *box) virtualNodes(want int) error {
	body, err := x.kube.Request(x.r.Context(), "GET", "/api/v1/nodes?labelSelector="+workload.LabelType+"%3D"+workload.VirtualNode, "", nil)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := json.Unmarshal(body, &nodes); err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	if ready != want || len(nodes.Items) != want {
		return fmt.Errorf("%d nodes are ready, of %d", ready, len(nodes.Items))
	}
	return nil
}

// request sends a request to the box's API server that has to succeed.
func (x *box) request(method, path, body string) []byte {
	contentType := "application/json"
	if method == "PATCH" {
		contentType = "application/merge-patch+json"
	}
	out, err := x.kube.Request(x.r.Context(), method, path, contentType, []byte(body))
	if err != nil {
		x.r.Fatalf("%s: %v", x.host.Name, err)
	}
	return out
}

// podSpec is what all measured pods are.
const podSpec = `"terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "web:1",
	"resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]`

// onProvider is the part of a pod that lets the scheduler put it on the provider's
// node only.
func (p *pair) onProvider() string {
	return `"nodeSelector": {"kubernetes.io/hostname": "` + p.node() + `"}`
}

// node is what the provider's node is called.
func (p *pair) node() string { return "liqo-" + p.y.host.Name }

// create makes a pod in shop and returns its UID.
func (p *pair) create(name, where string) string {
	body := p.x.request("POST", "/api/v1/namespaces/"+shop+"/pods",
		`{"metadata": {"name": "`+name+`"}, "spec": {`+where+`, `+podSpec+`}}`)
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		p.Fatalf("%v", err)
	}
	return string(pod.UID)
}

// createMany makes pods NAME-0, NAME-1, ... as fast as the API server takes them.
func (p *pair) createMany(count int, name, where string) {
	p.postMany(count, "pods", func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "%s-%d"}, "spec": {%s, %s}}`, name, i, where, podSpec)
	})
}

// postMany makes objects in shop as fast as the API server takes them.
func (p *pair) postMany(count int, plural string, object func(i int) []byte) {
	numbers := make(chan int, count)
	for i := range count {
		numbers <- i
	}
	close(numbers)
	var errs [16]error
	var group sync.WaitGroup
	for worker := range errs {
		group.Go(func() {
			for i := range numbers {
				_, err := p.x.kube.Request(p.Context(), "POST", "/api/v1/namespaces/"+shop+"/"+plural, "application/json", object(i))
				errs[worker] = errors.Join(errs[worker], err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		p.Fatalf("%v", err)
	}
}

// named matches the pods that are there and have such names, and more.
func named(prefix string, more func(sighting) bool) func(sighting) bool {
	return func(s sighting) bool { return strings.HasPrefix(s.name, prefix+"-") && more(s) }
}

// counted is what is counted of a pair at one moment.
type counted struct {
	own      [2]uint64 // writes of each agent to its own API server
	sqlite   [2]uint64
	used     [2]usage
	requests [2]map[string]int // writes to each API server by anybody
	calls    [2]uint64         // that each agent's endpoint got
}

func (p *pair) count() counted {
	var c counted
	for i, o := range []*box{p.x, p.y} {
		st := o.mustStatus()
		c.own[i], c.sqlite[i], c.calls[i] = st.Kubernetes.Writes, st.State.Transactions, st.Endpoint.Requests
		used, err := usageOf(o.agent.PID())
		if err != nil {
			p.Fatalf("%v", err)
		}
		c.used[i] = used
		c.requests[i] = o.writeRequests()
	}
	return c
}

// measureSharing measures pods that come and go one by one, and what they cost.
func measureSharing(r *scenarioRun) {
	p := r.newPair("")
	p.share()
	// The first pod of a namespace has one made for it at the provider.
	first := p.create("first", p.onProvider())
	began := p.mine.awaitUID(r, "the first pod runs", first, isReady).bound
	r.add("first pod of a namespace: bound to created at the provider", "", short(p.theirs.byOrigin(r)[first][0].created.Sub(began)), "its namespace, quota and role are made; "+twoKube)
	p.hundred()
	p.calm()
}

// hundred measures what a hundred pods cost: memory while they run, writes over
// their lives.
func (p *pair) hundred() {
	const size = 100
	before := p.count()
	p.createMany(size, "many", p.onProvider())
	p.mine.await(p.scenarioRun, 2*time.Minute, "a hundred pods run", size, named("many", isReady))
	p.pause(20 * time.Second)
	running := p.count()
	p.x.request("DELETE", "/api/v1/namespaces/"+shop+"/pods?fieldSelector=metadata.name%21%3Dfirst", "")
	p.mine.await(p.scenarioRun, 2*time.Minute, "they are gone", 0, named("many", isThere))
	p.theirs.await(p.scenarioRun, time.Minute, "they are gone at the provider", 0, named("many", isThere))
	p.pause(5 * time.Second)
	after := p.count()
	p.exact("many")
	how := fmt.Sprintf("%d pods created at once, run, deleted; ", size)
	x, y := difference(before.requests[0], after.requests[0]), difference(before.requests[1], after.requests[1])
	p.add("API writes of a pod's life: consumer's agent at its own API server", "", perPod(after.own[0]-before.own[0], size), how+"with the lease's; all requests there: "+list(x))
	// kwok ends a pod with a DELETE of its own.
	gateway := y["POST pods"] + y["PATCH pods"] + y["DELETE pods"] - size
	p.add("API writes of a pod's life: consumer's agent at the provider's API server", "", perPod(uint64(gateway), size),
		how+"its requests for pods, by the API server's metrics, less kwok's; all requests there: "+list(y))
	p.add("API writes of a pod's life: provider's agent", "", perPod(after.own[1]-before.own[1], size), how+"by its own count; its endpoint answered "+fmt.Sprint(after.calls[1]-before.calls[1])+" requests")
	for i, side := range []string{"consumer", "provider"} {
		p.add("memory of 100 offloaded pods, "+side, "", fmt.Sprintf("%s more: %s after %s", mib(running.used[i].rss-before.used[i].rss), mib(running.used[i].rss), mib(before.used[i].rss)), "RSS, 20 s after the last one runs")
	}
}

func perPod(n uint64, pods int) string { return fmt.Sprintf("%.2f", float64(n)/float64(pods)) }

// calm measures pods that come one after another, and changes of their states.
func (p *pair) calm() {
	const rounds = 50
	var created, running spread
	var uids []string
	for i := range rounds {
		uid := p.create(fmt.Sprintf("calm-%d", i), p.onProvider())
		mine := p.mine.awaitUID(p.scenarioRun, "it runs", uid, isReady)
		there := p.theirs.byOrigin(p.scenarioRun)[uid]
		if len(there) != 1 {
			p.Fatalf("pod %s is %d times at the provider", mine.name, len(there))
		}
		created = append(created, there[0].created.Sub(mine.bound))
		running = append(running, mine.ready.Sub(there[0].ready))
		uids = append(uids, uid)
	}
	how := fmt.Sprintf("%d pods, one after another; watches of both API servers, one clock; %s", rounds, twoKube)
	p.add("pod bound -> created at the provider", "median at most 150 ms", created.tail(), how)
	p.add("pod runs at the provider -> seen at the consumer", "median at most 150 ms", running.tail(), how)

	var changed spread
	theirs := p.theirs.byOrigin(p.scenarioRun)
	for i, uid := range uids {
		there, text := theirs[uid][0], fmt.Sprintf("change %d", i)
		p.y.request("PATCH", "/api/v1/namespaces/"+there.namespace+"/pods/"+there.name+"/status", `{"status": {"message": "`+text+`"}}`)
		says := func(s sighting) bool { return !s.said[text].IsZero() }
		from := p.theirs.awaitUID(p.scenarioRun, "the change", there.uid, says)
		to := p.mine.awaitUID(p.scenarioRun, "the change at the consumer", uid, says)
		changed = append(changed, to.said[text].Sub(from.said[text]))
	}
	p.add("status changes at the provider -> seen at the consumer", "median at most 150 ms", changed.tail(), fmt.Sprintf("%d changes, one after another; as above", len(uids)))
}

// measureUnused measures what a provider costs that is not used.
func measureUnused(r *scenarioRun) {
	p := r.newPair("")
	p.share()
	const window = 3 * time.Minute
	p.pause(45 * time.Second)
	before := p.count()
	p.pause(window)
	after := p.count()
	how := fmt.Sprintf("one joined provider, no pods, default configuration, %v", window)
	for i, side := range []string{"consumer", "provider"} {
		wanted := "0"
		if i == 0 {
			wanted = "the lease only: 2.4 a minute"
		}
		p.add("sharing, idle, "+side+": API writes", wanted, fmt.Sprintf("%.1f a minute", float64(after.own[i]-before.own[i])/window.Minutes()), how+"; the lease is renewed every 25 s")
		p.add("sharing, idle, "+side+": SQLite transactions", "0", fmt.Sprint(after.sqlite[i]-before.sqlite[i]), how)
		p.add("sharing, idle, "+side+": CPU", "", fmt.Sprintf("%.2f %%", 100*float64(after.used[i].cpu-before.used[i].cpu)/float64(window)), how+"; of one core")
		p.add("sharing, idle, "+side+": memory", "at most 12 MB, 40 MB RSS", after.used[i].memory(), how)
	}
}
