//go:build linux

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// owner is whose pod runs at a box: the box's own if that shares its namespace, or a consumer's; -1 if nobody else may reach it, or
// if it does not run there.
func (p *packets) owner(i int, pod *corev1.Pod) int {
	if pod.Spec.NodeName != p.c.boxes[i].host.Name || pod.Status.PodIP == "" {
		return -1
	}
	if pod.Namespace == "shop" {
		return i
	}
	return slices.Index(p.c.ids, pod.Labels[workload.LabelOriginCluster])
}

// learn takes note of what a box says, and finds what is wrong by now. The times of what is forgotten, or may not answer, stand still
// while the box could not do anything about it.
func (p *packets) learn(i int, s sight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, now := p.sights[i], time.Now()
	s.running = before.running
	_, asks := p.asker(i, i)
	well := asks && s.ok && before.ok && s.agent.Equal(before.agent)
	if !s.ok {
		before.ok = false
		p.sights[i] = before
	} else {
		if well {
			s.running += s.began.Sub(before.began)
		}
		for k := range s.pods {
			if owner := p.owner(i, &s.pods[k]); owner >= 0 {
				p.known[i][held{owner, netip.MustParseAddr(s.pods[k].Status.PodIP)}] = s.running
			}
		}
		p.sights[i] = s
	}
	targets := make(map[target]time.Time)
	for t := range p.ready(i, "shop") {
		if !p.watching {
			break // nobody asks them all the time
		}
		if since, known := p.targets[i][t]; known && well {
			targets[t] = since
		} else {
			targets[t] = now
		}
		if silent := now.Sub(targets[t]); silent > unansweredFor {
			p.wrong("%s: %s of pod %s is ready, and has not answered for %s", p.c.boxes[i].host.Name, t.addr, t.pod, silent.Round(time.Second))
			targets[t] = now // say it once
		}
	}
	p.targets[i] = targets
	p.suspects = slices.DeleteFunc(p.suspects, func(a arrival) bool {
		if from, at := p.sights[a.from], p.sights[a.box]; !from.ok || !at.ok || !from.began.After(a.when) || !at.began.After(a.when) {
			return false // a pod may have come since
		}
		if err := p.permitted(a); err != nil {
			p.wrong("%v", err)
		}
		return true
	})
}

// permitted checks that an answer came from where the question led, and that a pod that existed lately may ask it.
func (p *packets) permitted(a arrival) error {
	var names []string
	for _, x := range p.c.boxes {
		names = append(names, x.host.Name)
	}
	lately := func(box, owner int, addr netip.Addr) bool {
		last, known := p.known[box][held{owner, addr}]
		return known && a.running[box]-last <= deniedAfter
	}
	last := func(addr netip.Addr) byte { return addr.As4()[3] }
	if a.at < len(names) && p.sights[a.from].blocks[a.at].Contains(a.dst) && (a.box != a.at || last(a.asked) != last(a.dst) || last(a.seen) != last(a.src)) {
		return fmt.Errorf("%s of %s asked %s, which is of %s; %s of %s answered, and saw %s", a.src, names[a.from], a.dst, names[a.at], a.asked, names[a.box], a.seen)
	}
	for owner := range p.c.boxes {
		if lately(a.from, owner, a.src) && lately(a.box, owner, a.asked) {
			return nil
		}
	}
	return fmt.Errorf("%s of %s reached %s of %s, by %s at %s, and they are not pods of one cluster that may", a.src, names[a.from], a.asked, names[a.box], a.dst, a.when.Format(time.TimeOnly))
}

// wrong notes a failure. p.mu is held.
func (p *packets) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.c.logf("wrong: %s (pending: %s)", text, p.pending)
	p.found = append(p.found, fmt.Sprintf("%7s  %s (pending: %s)", time.Since(p.c.began).Round(100*time.Millisecond), text, p.pending))
}

// ready are the addresses of Services in a namespace of a box that are ready, and not in the box, with the box where each is;
// len(c.boxes) for a third one.
func (p *packets) ready(i int, namespace string) map[target]int {
	out := make(map[target]int)
	for _, s := range p.sights[i].slices {
		for _, e := range s.Endpoints {
			if s.Namespace != namespace || e.Conditions.Ready == nil || !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			t := target{addr: netip.MustParseAddr(e.Addresses[0])}
			if p.c.boxes[i].host.Pods[0].Contains(t.addr) {
				continue
			}
			if e.TargetRef != nil {
				t.pod = string(e.TargetRef.UID)
			}
			if out[t] = slices.IndexFunc(p.sights[i].blocks, func(b netip.Prefix) bool { return b.Contains(t.addr) }); out[t] < 0 {
				out[t] = len(p.c.boxes)
			}
		}
	}
	return out
}

// asker returns the address of a pod of an owner at a box that is ready, the first by age.
func (p *packets) asker(i, owner int) (addr netip.Addr, ok bool) {
	var pods []corev1.Pod
	for _, pod := range p.sights[i].pods {
		if p.owner(i, &pod) == owner && podReady(pod) && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return addr, false
	}
	first := slices.MinFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return netip.MustParseAddr(first.Status.PodIP), true
}

// namespace is where the pods of an owner are at a box.
func (p *packets) namespace(i, owner int) string {
	if i == owner {
		return "shop"
	}
	return workload.Namespace("liqo", peer.ClusterID(p.c.ids[owner]), "shop")
}

// services has a pod of an owner at a box ask all that is ready for it elsewhere. p.mu is held.
func (p *packets) services(i, owner int) (out []*question) {
	if src, ok := p.asker(i, owner); ok {
		for t, at := range p.ready(i, p.namespace(i, owner)) {
			out = append(out, &question{from: i, at: at, src: src, dst: t.addr, pod: t.pod})
		}
	}
	return out
}

// attempts are questions of pods of a box, and of one that there is not, to some of the addresses of another one: of its pods, of its
// host, and of nobody. p.mu is held.
func (p *packets) attempts(i int) (out []*question) {
	own := p.c.boxes[i].host.Pods.Node()[0].Addr().As4()
	own[3] = unusedAddress
	sources := []netip.Addr{netip.AddrFrom4(own)}
	for owner := range p.c.boxes {
		if src, ok := p.asker(i, owner); ok {
			sources = append(sources, src)
		}
	}
	for j, block := range p.sights[i].blocks {
		if !block.IsValid() {
			continue
		}
		parts := []byte{unusedAddress, unusedAddress + 1}
		for _, pod := range p.sights[j].pods {
			if addr, err := netip.ParseAddr(pod.Status.PodIP); err == nil && pod.Spec.NodeName == p.c.boxes[j].host.Name {
				parts = append(parts, addr.As4()[3])
			}
		}
		rand.Shuffle(len(parts), func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
		for _, part := range parts[:min(len(parts), 8)] {
			dst := block.Addr().As4()
			dst[3] = part
			for _, src := range sources {
				out = append(out, &question{from: i, at: j, src: src, dst: netip.AddrFrom4(dst)})
			}
		}
	}
	return out
}

// watch asks all the time, until stop is called.
func (p *packets) watch() {
	ctx, cancel := context.WithCancel(p.c.t.Context())
	var boxes sync.WaitGroup
	p.mu.Lock()
	p.watching = true
	p.mu.Unlock()
	for i := range p.c.boxes {
		boxes.Go(func() {
			for ctx.Err() == nil {
				next := time.After(time.Second)
				p.learn(i, p.look(ctx, i))
				p.mu.Lock()
				questions := append(p.services(i, i), p.attempts(i)...)
				p.mu.Unlock()
				p.ask(questions)
				select {
				case <-next:
				case <-ctx.Done():
				}
			}
		})
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		boxes.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watching = false
		p.c.logf("%d packets were answered; an address was ready for %s at most until it answered", p.answers, p.longest.Round(100*time.Millisecond))
	})
	p.c.t.Cleanup(p.stop)
}

// answered checks that each address of a Service that is ready answers, at home and for guests, and that each provider in use answers.
func (p *packets) answered() error {
	for i := range p.c.boxes {
		if p.learn(i, p.look(p.c.t.Context(), i)); !p.sights[i].ok {
			return fmt.Errorf("%s does not say which pods it has", p.c.boxes[i].host.Name)
		}
	}
	type way struct{ from, at, owner int }
	asked := make(map[way][]*question)
	for i := range p.c.boxes {
		for owner := range p.c.boxes {
			p.mu.Lock()
			questions := p.services(i, owner)
			p.mu.Unlock()
			p.ask(questions)
			for _, q := range questions {
				asked[way{i, q.at, owner}] = append(asked[way{i, q.at, owner}], q)
			}
		}
	}
	var errs []error
	for x := range p.c.boxes {
		for y := range p.c.boxes {
			if x == y {
				continue
			}
			if joined, err := p.c.edge(x, y); err != nil {
				return err
			} else if joined && (len(asked[way{x, y, x}]) == 0 || len(asked[way{y, x, x}]) == 0) {
				errs = append(errs, fmt.Errorf("%s consumes %s, and of what is ready there, its pods have %d addresses at home, and %d there", p.c.boxes[x].host.Name,
					p.c.boxes[y].host.Name, len(asked[way{x, y, x}]), len(asked[way{y, x, x}])))
			}
		}
	}
	ctx, cancel := context.WithTimeout(p.c.t.Context(), 3*time.Second)
	defer cancel()
	for _, questions := range asked {
		for _, q := range questions {
			errs = append(errs, p.await(ctx, q))
		}
	}
	for w, questions := range asked {
		if w.from == w.owner && w.at < len(p.c.boxes) && len(questions) > 0 {
			errs = append(errs, p.served(w.from, w.at))
		}
	}
	return errors.Join(errs...)
}

// await waits for an answer, and checks that it is that of the pod that was meant.
func (p *packets) await(ctx context.Context, q *question) error {
	select {
	case <-q.answered:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.answer == nil {
		return fmt.Errorf("%s of %s asks %s, and is not answered", q.src, p.c.boxes[q.from].host.Name, q.dst)
	}
	a := *q.answer
	if err := p.permitted(a); err != nil || q.pod == "" {
		return err
	}
	for _, pod := range p.sights[a.box].pods {
		if pod.Annotations[workload.AnnotationOriginUID] == q.pod && pod.Status.PodIP == a.asked.String() {
			return nil
		}
	}
	return fmt.Errorf("%s: %s leads to %s of %s, where pod %s is not", p.c.boxes[q.from].host.Name, q.dst, a.asked, p.c.boxes[a.box].host.Name, q.pod)
}

// note takes note of the faults that go on.
func (p *packets) note(going []pending) {
	var texts []string
	for _, f := range going {
		texts = append(texts, f.kind+" "+p.c.boxes[f.box].host.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = cmp.Or(strings.Join(texts, ", "), "nothing")
}

// hide starts pods that guests may not reach, before all others: kwok gives the first one the address of the bridge.
func (p *packets) hide(x *box) {
	x.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n---\n" + strings.ReplaceAll(deployment("secret", 2, x.host.Name, ""), "namespace: shop", "namespace: private"))
	x.eventually("pods of its own run", func() error {
		pods, err := list[corev1.Pod](x, "/api/v1/namespaces/private/pods")
		if err == nil && (len(pods) != 2 || slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Status.PodIP == "" })) {
			err = fmt.Errorf("there are %d, or they have no address", len(pods))
		}
		return err
	})
}
