//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// faultKinds are all faults that there are. A new one is a line here, and is described in docs/reliability.md.
func faultKinds() []faultKind {
	agent, plane, link := []string{partAgent}, []string{partPlane}, []string{partLink}
	return []faultKind{
		{"kill-agent", 3, 6 * time.Second, agent, func(c *chaos, f fault) func() { return c.takeDown(f.box, nil) }},
		{"other-version", 2, 20 * time.Second, agent, func(c *chaos, f fault) func() {
			x := c.boxes[f.box]
			// What has ended is started again after every step.
			update := func(bin string) {
				c.killed[x.agent] = true
				c.check(x.agent.Kill())
				x.bin = bin
			}
			present := x.bin
			update(bed.Binary(c.t, []string{"liqo-agent-speaks-1-2", "liqo-agent-speaks-2"}[f.n%2]))
			return func() { update(present) }
		}},
		{"stop-agent", 2, 12 * time.Second, agent, func(c *chaos, f fault) func() { return c.freeze(c.boxes[f.box].agent) }},
		{"clock", 2, 20 * time.Second, agent, func(c *chaos, f fault) func() {
			return c.setClock(f)
		}},
		{"start-at-wrong-time", 1, 20 * time.Second, agent, func(c *chaos, f fault) func() {
			x := c.boxes[f.box]
			c.killed[x.agent] = true
			c.check(x.agent.Kill())
			x.launch()
			return c.setClock(f)
		}},
		{"damage-database", 1, 3 * time.Second, []string{partAgent, partPlane, partDisk}, func(c *chaos, f fault) func() { return c.takeDown(f.box, func() { c.damage(f) }) }},
		{"kill-apiserver", 2, 10 * time.Second, plane, func(c *chaos, f fault) func() {
			c.check(c.boxes[f.box].kube.Kill())
			return func() {} // what has ended is started again after every step
		}},
		{"stop-apiserver", 2, 15 * time.Second, plane, func(c *chaos, f fault) func() {
			return c.freeze(c.boxes[f.box].kube.APIServer())
		}},
		{"kill-proxy", 1, 15 * time.Second, []string{partProxy}, func(c *chaos, f fault) func() {
			if p := c.proxies[c.boxes[f.box]]; !over(p) {
				c.check(p.Kill())
			}
			return func() {} // what has ended is started again after every step
		}},
		{"kill-etcd", 1, 5 * time.Second, plane, func(c *chaos, f fault) func() {
			k := c.boxes[f.box].kube
			c.check(k.Etcd().Kill())
			return func() { c.check(k.StartEtcd()) }
		}},
		{"stop-etcd", 1, 12 * time.Second, plane, func(c *chaos, f fault) func() { return c.freeze(c.boxes[f.box].kube.Etcd()) }},
		{"unplug", 2, 15 * time.Second, link, func(c *chaos, f fault) func() {
			l := c.boxes[f.box].host.Link("eth0")
			l.Unplug()
			return l.Plug
		}},
		{"link-down", 1, 10 * time.Second, link, func(c *chaos, f fault) func() {
			l := c.boxes[f.box].host.Link("eth0")
			l.Down()
			return l.Up
		}},
		{"one-way", 2, 15 * time.Second, link, func(c *chaos, f fault) func() { return c.lose(f, 100) }},
		{"lossy", 2, 20 * time.Second, link, func(c *chaos, f fault) func() { return c.lose(f, 5+f.n%40) }},
		{"disorder", 2, 20 * time.Second, link, func(c *chaos, f fault) func() {
			l := c.boxes[f.box].host.Link("eth0")
			l.SetDisorder(5 + f.n%40)
			return func() { l.SetDisorder(0) }
		}},
		{"new-address", 2, 0, link, func(c *chaos, f fault) func() {
			// Each box has addresses of its own, so that two never meet.
			c.boxes[f.box].host.Link("eth0").SetAddress(fmt.Sprintf("10.77.0.%d/24", 10+f.box*80+f.n%80))
			return nil
		}},
		{"full-disk", 1, 15 * time.Second, []string{partDisk}, func(c *chaos, f fault) func() {
			x := c.boxes[f.box]
			c.full[x] = true
			_, _ = x.host.Run(c.t.Context(), "dd", "if=/dev/zero", "of="+fillerPath, "bs=1k") // it ends with "no space left"
			return func() {
				x.shell("rm " + fillerPath)
				delete(c.full, x)
			}
		}},
		{"delete", 5, 0, nil, func(c *chaos, f fault) func() {
			targets := c.targets(f)
			c.kubectl(f, append([]string{"delete", "--wait=false", "--ignore-not-found"}, targets[f.n%len(targets)]...))
			return nil
		}},
		{"edit", 4, 0, nil, func(c *chaos, f fault) func() {
			edits := c.edits(f)
			edit := edits[f.n%len(edits)]
			if strings.Contains(edit[1], workload.LabelOriginCluster) {
				// The agent may write there before it has heard of this.
				c.boxes[f.box].deprived = "what is written there has the label of the guest"
			}
			c.kubectl(f, append([]string{"patch", "--type=merge"}, edit...))
			return nil
		}},
		{"flush-network", 1, 0, nil, func(c *chaos, f fault) func() {
			script := []string{"nft delete table ip liqo", "ip link delete liqo0", "ip route flush dev liqo0"}[f.n%3]
			_, err := c.boxes[f.box].tryShell(script)
			c.logf("%s: %s: %v", c.boxes[f.box].host.Name, script, err)
			return nil
		}},
		{"reload", 2, 5 * time.Second, agent, func(c *chaos, f fault) func() {
			x := c.boxes[f.box]
			x.configure(chaosConfig + []string{"[sharing]\npercentage = 30\n", "[metrics]\nlisten = \"127.0.0.1:6448\"\n", "[network\n"}[f.n%3])
			_ = x.agent.Signal(syscall.SIGHUP) // it may have ended
			return func() {
				x.configure(chaosConfig)
				_ = x.agent.Signal(syscall.SIGHUP)
			}
		}},
		{"rotate-key", 1, 0, nil, func(c *chaos, f fault) func() {
			_, err := c.cli(f.box, "key", "rotate", "--yes")
			c.logf("%s: key rotate: %v", c.boxes[f.box].host.Name, err)
			return nil
		}},
		{"scale", 2, 0, nil, func(c *chaos, f fault) func() {
			c.kubectl(f, []string{"scale", "-n", "shop", "deployment/spread", fmt.Sprintf("--replicas=%d", 2+f.n%5)})
			return nil
		}},
		{"decide", 5, 0, nil, func(c *chaos, f fault) func() {
			verbs := []string{"connect", "accept", "connect", "disconnect", "stop", "reject", "block", "unblock", "unblock"}
			verb := verbs[f.n%len(verbs)]
			c.logf("%s: %s %s: %v", c.boxes[f.box].host.Name, verb, c.boxes[f.peer].host.Name, c.decide(f.box, f.peer, verb))
			return nil
		}},
	}
}

const (
	chaosState  = "/var/lib/liqo-agent"
	fillerPath  = chaosState + "/filler"
	chaosConfig = "[log]\nlevel = \"debug\"\n"
	// patience is how long what a person types may take while things are broken.
	patience = 10 * time.Second
)

// setClock sets the clock of an agent, until it is mended.
func (c *chaos) setClock(f fault) (mend func()) {
	p := c.boxes[f.box].agent
	set := func(ahead time.Duration) {
		err := p.SetClock(ahead)
		c.logf("%s: the clock of the agent is %s ahead: %v", c.boxes[f.box].host.Name, ahead, err)
		if !over(p) && !errors.Is(err, errors.ErrUnsupported) {
			c.check(err)
		}
	}
	const day = 24 * time.Hour
	set([]time.Duration{time.Hour, -time.Hour, 2 * day, -2 * day, 400 * day, -400 * day}[f.n%6])
	return func() {
		set(0)
		// The kernel still says that a time server keeps the clock, so the agent believes it, and may have deleted what is old by it.
		if kept, err := clock.Synchronised(); kept && err == nil {
			delete(c.rows, c.boxes[f.box])
		}
	}
}

// takeDown kills an agent, and does something while it is down.
func (c *chaos) takeDown(box int, meanwhile func()) (mend func()) {
	x := c.boxes[box]
	c.down[x], c.killed[x.agent] = true, true
	c.check(x.agent.Kill())
	if meanwhile != nil {
		meanwhile()
	}
	return func() { delete(c.down, x) }
}

// freeze stops a process until it is mended.
func (c *chaos) freeze(p *bed.Process) (mend func()) {
	_ = p.Signal(syscall.SIGSTOP) // it may have ended
	return func() { _ = p.Signal(syscall.SIGCONT) }
}

// lose loses packets on their way to a box, but none that it sends.
func (c *chaos) lose(f fault, percent int) (mend func()) {
	l := c.boxes[f.box].host.Link("eth0")
	l.SetLoss(percent)
	return func() { l.SetLoss(0) }
}

// damage overwrites a page of a database, or where its header is.
func (c *chaos) damage(f fault) {
	x := c.boxes[f.box]
	file, err := os.OpenFile(x.host.Path(statePath), os.O_RDWR, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	const page = 4096
	info, err := file.Stat()
	c.check(err)
	at, junk := int64(0), make([]byte, page)
	if pages := int(info.Size() / page); f.n%4 != 0 && pages > 1 {
		at = int64(1+f.n%(pages-1)) * page
	} else {
		junk = junk[:100]
	}
	r := rand.New(rand.NewPCG(uint64(f.n), 1))
	for i := range junk {
		junk[i] = byte(r.Uint32())
	}
	_, err = file.WriteAt(junk, at)
	c.check(errors.Join(err, file.Close()))
	c.logf("%s: %d bytes of the database, of %d, are junk from %d on", x.host.Name, len(junk), info.Size(), at)
	// What people decided there may be gone, and with it what the peers were told.
	for y := range c.boxes {
		c.forget(f.box, y, connect, accept, blocked)
		c.forget(y, f.box, connect)
	}
	delete(c.rows, x)
}

// targets are the objects that the two boxes have about each other, as kubectl names them. Those that mean a decision of a person
// come first.
func (c *chaos) targets(f fault) [][]string {
	id := c.ids[f.peer]
	guests := workload.Namespace("liqo", peer.ClusterID(id), "shop")
	return [][]string{
		{"foreigncluster", id},
		{"peeringrequest", id},
		{"advertisement", id},
		{"secret", "-n", "liqo", "liqo-peer-" + id},
		{"clusterrole", "liqo:peer:" + id},
		{"clusterrolebinding", "liqo:peer:" + id},
		{"node", c.boxes[f.peer].asNode()},
		{"lease", "-n", "kube-node-lease", c.boxes[f.peer].asNode()},
		{"validatingwebhookconfiguration", "liqo-agent"},
		{"namespace", guests},
		{"resourcequota", "-n", guests, "liqo-offer"},
		{"role", "-n", guests, "liqo-consumer"},
		{"rolebinding", "-n", guests, "liqo-consumer"},
		{"networkpolicy", "-n", guests, "liqo-guests"},
		{"pods", "-n", guests, "--all"},
		{"services", "-n", guests, "--all"},
		{"endpointslices", "-n", guests, "--all"},
	}
}

// edits are what is changed in these objects, none of which is a decision.
func (c *chaos) edits(f fault) [][]string {
	t := c.targets(f)
	edit := func(target int, patch string) []string { return append([]string{"-p", patch}, t[target]...) }
	return [][]string{
		edit(0, `{"spec":{"authUrl":"https://192.0.2.1:6447","namespace":"elsewhere"}}`),
		edit(1, `{"spec":{"namespace":"elsewhere"}}`),
		edit(2, `{"spec":{"resourceQuota":{"hard":{"cpu":"1m"}}}}`),
		edit(3, `{"data":{"ca.crt":"eA==","fingerprint":null}}`),
		edit(4, `{"rules":[]}`),
		edit(6, `{"metadata":{"labels":{"liqo.io/type":null}},"spec":{"taints":[]}}`),
		edit(9, `{"metadata":{"labels":{"`+workload.LabelOriginCluster+`":null}}}`),
		edit(10, `{"spec":{"hard":{"pods":"0"}}}`),
		edit(11, `{"rules":[]}`),
		edit(13, `{"spec":{"egress":[],"ingress":[]}}`),
	}
}

// kubectl runs a command against the API server of a box, which may be broken.
func (c *chaos) kubectl(f fault, args []string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, err := c.boxes[f.box].kube.Kubectl(ctx, append([]string{"--request-timeout=5s"}, args...)...)
	c.logf("%s: kubectl %v: %v", c.boxes[f.box].host.Name, args, err)
	switch {
	case args[0] != "delete":
	case args[3] == "foreigncluster":
		c.forget(f.box, f.peer, connect)
	case args[3] == "peeringrequest":
		c.forget(f.box, f.peer, accept)
		c.forget(f.peer, f.box, connect)
	}
}

// cli runs a command of the agent's on a box that may be broken.
func (c *chaos) cli(box int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	x := c.boxes[box]
	return x.host.Run(ctx, append([]string{x.bin}, args...)...)
}

// What people decide about a peer.
const (
	connect = "connect to it"
	accept  = "accept it"
	blocked = "block it"
)

// choice is what a person at a box decides about a peer.
type choice struct {
	box, peer int
	what      string
}

// decide has a person at box x decide about box y, and remembers what was acknowledged.
func (c *chaos) decide(x, y int, verb string) error {
	id := c.ids[y]
	args := map[string][]string{
		"connect":    {"peers", "connect", id, "--yes", "--no-wait"},
		"disconnect": {"peers", "disconnect", id, "--no-wait"},
		"accept":     {"peers", "accept", id, "--yes"},
		"stop":       {"peers", "disconnect", id, "--incoming", "--no-wait"},
		"reject":     {"peers", "reject", id},
		"block":      {"peers", "block", id},
		"unblock":    {"peers", "unblock", id},
	}[verb]
	_, err := c.cli(x, args...)
	switch verb {
	case "stop", "reject":
		c.forget(y, x, connect)
	case "block", "unblock":
		if was, known := c.decided[choice{x, y, blocked}]; verb == "block" || was || !known {
			c.forget(x, y, connect, accept)
			c.forget(y, x, connect)
		}
	}
	what := map[string]string{"connect": connect, "disconnect": connect, "accept": accept, "stop": accept, "reject": accept, "block": blocked, "unblock": blocked}[verb]
	if c.forget(x, y, what); err == nil {
		c.decided[choice{x, y, what}] = verb == "connect" || verb == "accept" || verb == "block"
	}
	return err
}

// forget says that it is not known any more what a person at box x has decided about box y.
func (c *chaos) forget(x, y int, whats ...string) {
	for _, what := range whats {
		delete(c.decided, choice{x, y, what})
	}
}
