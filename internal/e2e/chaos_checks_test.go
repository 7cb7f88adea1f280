//go:build linux

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/workload"
)

// asDecided checks that peerings, nodes and pods are what the preferences of people say, on both sides, and that these are what
// was acknowledged.
func (c *chaos) asDecided() error {
	for _, x := range c.boxes {
		if st, err := x.status(); err != nil || !st.Kubernetes.Connected {
			return fmt.Errorf("%s has no API server: %s %v", x.host.Name, st.Kubernetes.LastError, err)
		}
		// As a person does: nobody else takes away pods that failed.
		if _, err := x.kube.Request(c.t.Context(), "DELETE", "/api/v1/namespaces/shop/pods?fieldSelector=status.phase%3DFailed", "", nil); err != nil {
			return err
		}
	}
	for x := range c.boxes {
		nodes := 1
		for y := range c.boxes {
			if x == y {
				continue
			}
			joined, err := c.edge(x, y)
			if err != nil {
				return fmt.Errorf("%s consumes %s (%t): %w", c.boxes[x].host.Name, c.boxes[y].host.Name, joined, err)
			}
			if joined {
				nodes++
			}
			if err := c.running(c.boxes[x], "on-"+c.boxes[y].host.Name, joined); err != nil {
				return err
			}
		}
		if err := c.running(c.boxes[x], "spread", true); err != nil {
			return err
		}
		if all, err := list[corev1.Node](c.boxes[x], "/api/v1/nodes"); err != nil || len(all) != nodes {
			return fmt.Errorf("%s has %d nodes, want %d: %v", c.boxes[x].host.Name, len(all), nodes, err)
		}
	}
	return nil
}

// edge checks whether box x consumes box y, and returns whether it is to.
func (c *chaos) edge(x, y int) (joined bool, err error) {
	consumer, err := c.boxes[x].peer(c.ids[y])
	if err != nil {
		return false, err
	}
	provider, err := c.boxes[y].peer(c.ids[x])
	if err != nil {
		return false, err
	}
	accepts := provider.Preferences.AutoAccept == control.Yes
	for said, is := range map[choice]bool{
		{x, y, connect}: consumer.Outgoing.Wanted, {y, x, accept}: accepts,
		{x, y, blocked}: consumer.Preferences.Blocked, {y, x, blocked}: provider.Preferences.Blocked,
	} {
		if want, known := c.decided[said]; known && want != is {
			return false, fmt.Errorf("a person at %s decided whether to %s: %t, now it is %t", c.boxes[said.box].host.Name, said.what, want, is)
		}
	}
	joined = consumer.Outgoing.Wanted && accepts && !consumer.Preferences.Blocked && !provider.Preferences.Blocked &&
		consumer.Trust.Mode == control.Trusted && provider.Trust.Mode == control.Trusted
	if consumer.Outgoing.Joined != joined || provider.Incoming.Joined != joined || consumer.Outgoing.Ending || provider.Incoming.Ending {
		err = fmt.Errorf("outgoing %+v, incoming %+v", consumer.Outgoing, provider.Incoming)
	}
	p := &pair{bed: c.bed, a: c.boxes[x], b: c.boxes[y], aID: c.ids[x], bID: c.ids[y]}
	if !joined {
		return false, errors.Join(err, p.nothingShared())
	}
	if err == nil {
		err = p.shares()
	}
	return joined, err
}

// shares checks that both ForeignClusters say that A consumes B, and that the node and its pods are what they are to be.
func (p *pair) shares() error {
	mine, err := p.a.full(p.bID)
	if err != nil {
		return err
	}
	theirs, err := p.b.full(p.aID)
	if err != nil {
		return err
	}
	if err := errors.Join(outgoing(true)(mine), incoming(true)(theirs), condition(mine, api.ConditionReachable, api.ConditionTrue, "")); err != nil {
		return err
	}
	node, err := p.a.node(p.b.asNode())
	if err == nil && (node == nil || !ready(node)) {
		err = fmt.Errorf("the node is not ready: %v", node)
	}
	if err == nil {
		_, err = p.onNeighbour(-1)
	}
	return err
}

// nothingShared checks that there is no node of B at A, no offer, and nothing of A at B.
func (p *pair) nothingShared() error {
	node, err := p.a.node(p.b.asNode())
	if node != nil {
		err = fmt.Errorf("node %s is left: %+v", node.Name, node.Spec)
	}
	spaces, spaceErr := list[metav1.PartialObjectMetadata](p.b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster+"%3D"+p.aID)
	if len(spaces) > 0 {
		spaceErr = fmt.Errorf("namespace %s is left", spaces[0].Name)
	}
	offer, found, offerErr := get[api.Advertisement](p.a, advPath+"/"+p.bID)
	if found {
		offerErr = fmt.Errorf("the offer is left: %+v", offer.Status)
	}
	return errors.Join(err, spaceErr, offerErr)
}

// running checks that a Deployment has as many pods as it is to have, and that all of them are ready, or none is anywhere.
func (c *chaos) running(x *box, name string, want bool) error {
	d, found, err := get[appsv1.Deployment](x, "/apis/apps/v1/namespaces/shop/deployments/"+name)
	if err != nil || !found {
		return fmt.Errorf("%s: there is no Deployment %s: %v", x.host.Name, name, err)
	}
	pods, err := list[corev1.Pod](x, "/api/v1/namespaces/shop/pods?labelSelector=app%3D"+name)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if is := podReady(pod) && pod.Spec.NodeName != ""; is != want || pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" && !want {
			return fmt.Errorf("%s: pod %s on node %q is %s %s, deleted: %v", x.host.Name, pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.DeletionTimestamp)
		}
	}
	if len(pods) != int(*d.Spec.Replicas) {
		return fmt.Errorf("%s: Deployment %s has %d pods, want %d", x.host.Name, name, len(pods), *d.Spec.Replicas)
	}
	return nil
}

// mayReplace are the kinds of faults after which pods may be others: people want it so, or the agent has lost what it knew.
var mayReplace = []string{"damage-database", "decide", "delete", "edit", "reload", "scale"}

// podsNow are all pods of the Deployments, and those at the providers that stand for them.
func (c *chaos) podsNow() (map[string]bool, error) {
	out := make(map[string]bool)
	for _, x := range c.boxes {
		mine, err := x.pods()
		if err != nil {
			return nil, err
		}
		theirs, err := list[corev1.Pod](x, "/api/v1/pods?labelSelector="+workload.LabelOriginCluster)
		if err != nil {
			return nil, err
		}
		for _, pod := range slices.Concat(mine, theirs) {
			out[fmt.Sprintf("%s: pod %s/%s %s on %s", x.host.Name, pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName)] = true
		}
	}
	return out, nil
}

// survived checks that the pods that were there before are there still.
func (c *chaos) survived(before map[string]bool) error {
	now, err := c.podsNow()
	for pod := range before {
		if !now[pod] {
			err = errors.Join(err, fmt.Errorf("no fault was to end it, and it is gone: %s", pod))
		}
	}
	return err
}

// quietFor is how long nobody writes anything at the end.
const quietFor = time.Minute

// silence is the condition that for a minute no agent has written anything, neither to its API server, but for leases of nodes, nor
// to its database.
func (c *chaos) silence() func() error {
	stored, since := make([]uint64, len(c.boxes)), time.Now()
	var last string
	return func() error {
		for i, x := range c.boxes {
			st, err := x.status()
			if err != nil {
				return err
			}
			if n := st.State.Transactions; n != stored[i] {
				stored[i], since, last = n, time.Now(), x.host.Name+" wrote to its database"
			}
		}
		if time.Since(since) < quietFor {
			return fmt.Errorf("%s at %s", last, since.Format(time.TimeOnly))
		}
		for _, x := range c.boxes {
			events, err := x.kube.Audit()
			if err != nil {
				return err
			}
			for _, e := range slices.Backward(events) {
				if e.RequestReceivedTimestamp.Before(time.Now().Add(-quietFor)) {
					break
				}
				if e.Writes() {
					since, last = e.RequestReceivedTimestamp, fmt.Sprintf("%s: %s %s", x.host.Name, e.Verb, e.RequestURI)
					return errors.New(last)
				}
			}
		}
		return nil
	}
}

// writesPerMinute is how often an agent writes to its API server at most, whatever happens: one that writes again what nobody takes, or
// what somebody else undoes at once, writes more often.
const writesPerMinute = 300

// restrained checks that no agent has written more often than that in any minute since a time.
func (c *chaos) restrained(since time.Time) error {
	for _, x := range c.boxes {
		events, err := x.kube.Audit()
		if err != nil {
			return err
		}
		events = slices.DeleteFunc(events, func(e bed.AuditEvent) bool { return !e.Writes() || e.RequestReceivedTimestamp.Before(since) })
		slices.SortFunc(events, func(a, b bed.AuditEvent) int { return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp) })
		first, most := 0, 0 // of the busiest minute
		for i, j := 0, 0; j < len(events); j++ {
			for events[j].RequestReceivedTimestamp.Sub(events[i].RequestReceivedTimestamp) > time.Minute {
				i++
			}
			if n := j - i + 1; n > most {
				first, most = i, n
			}
		}
		c.logf("%s: at most %d writes in a minute", x.host.Name, most)
		if most <= writesPerMinute {
			continue
		}
		times := make(map[string]int)
		for _, e := range events[first : first+most] {
			times[e.Verb+" "+e.RequestURI]++
		}
		what := slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Compare(times[b], times[a]) })[0]
		return fmt.Errorf("%s: %d writes in the minute from %s, %d times %s", x.host.Name, most, events[first].RequestReceivedTimestamp.Format(time.TimeOnly), times[what], what)
	}
	return nil
}

// usedUp is what an agent uses of its machine.
type usedUp struct{ goroutines, files int }

// resources are the goroutines and open files of all agents.
func (c *chaos) resources() []usedUp {
	c.t.Helper()
	var out []usedUp
	for _, x := range c.boxes {
		_, text, err := x.ask("unix", socketPath, "/debug/pprof/goroutine?debug=1")
		c.check(err)
		var u usedUp
		if _, err := fmt.Sscanf(string(text), "goroutine profile: total %d", &u.goroutines); err != nil {
			c.t.Fatalf("%s: %v: %.100s", x.host.Name, err, text)
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", x.agent.PID()))
		c.check(err)
		u.files = len(files)
		out = append(out, u)
	}
	return out
}

// grown compares what agents use with what they used before: connections of the moment come and go.
func (c *chaos) grown(before []usedUp) error {
	for i, now := range c.resources() {
		if was := before[i]; now.goroutines > was.goroutines+was.goroutines/4+10 || now.files > was.files+was.files/4+10 {
			return fmt.Errorf("%s: %d goroutines, %d before; %d files, %d before", c.boxes[i].host.Name, now.goroutines, was.goroutines, now.files, was.files)
		}
	}
	return nil
}

// generated are the resources whose objects have other names each time, or that are notes.
const generated = "events,events.events.k8s.io,pods,replicasets.apps,endpointslices.discovery.k8s.io,ipaddresses.networking.k8s.io,endpoints,certificatesigningrequests.certificates.k8s.io,componentstatuses,pods.metrics.k8s.io"

// inventory lists what is in all API servers, with what may be edited of it, once it stays the same while each agent answers
// ten requests: some of it comes a moment after what is waited for.
func (c *chaos) inventory() map[string]bool {
	c.t.Helper()
	var out map[string]bool
	from := make([]uint64, len(c.boxes))
	c.eventually("what there is settles", func() error {
		now, err := c.tryInventory()
		if err != nil {
			return err
		}
		changed := !maps.Equal(now, out)
		out = now
		for i, x := range c.boxes {
			st, failed := x.status()
			if changed {
				from[i] = st.Endpoint.Requests
			}
			if n := st.Endpoint.Requests - from[i]; failed != nil || n < 10 {
				err = errors.Join(err, failed, fmt.Errorf("%s has answered %d requests since", x.host.Name, n))
			}
		}
		return err
	})
	return out
}

func (c *chaos) tryInventory() (map[string]bool, error) {
	all := make(map[string]bool)
	for _, x := range c.boxes {
		out, err := x.tryShell(`kubectl get "$(kubectl api-resources --verbs=list -o name | grep -vxFf <(tr , '\n' <<<` + generated + `) | paste -sd,)" -A --no-headers ` +
			`-o custom-columns='K:.kind,NS:.metadata.namespace,N:.metadata.name,D:.metadata.deletionTimestamp,T:.metadata.labels.liqo\.io/type,O:.metadata.labels.liqo\.io/origin-cluster-id,` +
			`R:.rules,F:.roleRef,S:.subjects,E:.spec.egress,I:.spec.ingress,J:.spec.join'`)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %.500s", x.host.Name, err, out)
		}
		for line := range strings.Lines(out) {
			all[x.host.Name+": "+strings.Join(strings.Fields(line), " ")] = true
		}
	}
	return all, nil
}

// same compares what is in all API servers with what was there before, but for what has a name with except in it.
func (c *chaos) same(before map[string]bool, except string) error {
	now, err := c.tryInventory()
	if err != nil {
		return err
	}
	var differs []string
	for line := range maps.Keys(now) {
		if !before[line] && (except == "" || !strings.Contains(line, except)) {
			differs = append(differs, "more: "+line)
		}
	}
	for line := range maps.Keys(before) {
		if !now[line] {
			differs = append(differs, "gone: "+line)
		}
	}
	if len(differs) == 0 {
		return nil
	}
	slices.SortFunc(differs, func(a, b string) int { return cmp.Compare(a, b) })
	return errors.New(strings.Join(differs, "\n"))
}

// noNetwork checks that no box has anything of a network with peers.
func (c *chaos) noNetwork() error {
	for _, x := range c.boxes {
		out, err := x.tryShell("ip -o link show; nft list tables; ip route show table all; ip -6 route show table all; ip rule")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "liqo") || strings.Contains(line, "241.") {
				return fmt.Errorf("%s has %s", x.host.Name, line)
			}
		}
	}
	return nil
}
