//go:build linux

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
)

// chaos is a run: boxes that are joined both ways, what happens to them, and what is to become of them.
type chaos struct {
	t     *testing.T
	bed   *bed.Bed
	boxes []*box
	ids   []string
	began time.Time
	late  time.Duration // how far the faults are behind the schedule

	packets *packets
	pending []pending
	down    map[*box]bool           // agents that are not to run now
	full    map[*box]bool           // boxes whose disk is full
	killed  map[*bed.Process]bool   // agents that ended because they were killed
	proxies map[*box]*bed.Process   // kube-proxy
	ended   []string                // agents that ended by themselves
	decided map[choice]bool         // what people decided, as far as it is known to hold still
	rows    map[*box]map[string]int // of the history, each as often as it was seen
}

// pending is a fault that is to be mended.
type pending struct {
	fault
	mend func()
}

// TestChaos has everything happen to joined boxes that a schedule says, mends it, and looks at what has become of them: see
// docs/reliability.md. make chaos runs it.
func TestChaos(t *testing.T) {
	text := os.Getenv("LIQO_CHAOS_SEEDS")
	if text == "" || text == "checks" {
		t.Skip("a seed takes minutes; make chaos runs it")
	}
	seeds, err := seedsOf(text)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := only(os.Getenv("LIQO_CHAOS_FAULTS"))
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string, normal, least, most int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(normal)))
		if err != nil || n < least || n > most {
			t.Fatalf("%s is %q: give a number from %d to %d", name, os.Getenv(name), least, most)
		}
		return n
	}
	boxes, rounds := number("LIQO_CHAOS_BOXES", 3, 2, 3), number("LIQO_CHAOS_ROUNDS", 20, 1, 1000)
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			plan := schedule(kinds, seed, boxes, rounds)
			for _, f := range plan {
				t.Log(f)
			}
			c := newChaos(t, boxes)
			stranger := c.inventory()
			c.joinAll()
			joined, before := c.inventory(), c.resources()
			pods, err := c.podsNow()
			c.check(err)
			c.happens(plan)

			c.eventually("what is shared is what people decided", c.asDecided)
			c.eventually("requests to Services are answered again", c.packets.answered)
			c.packets.stop()
			if !slices.ContainsFunc(plan, func(f fault) bool { return slices.Contains(mayReplace, f.kind) }) {
				c.check(c.survived(pods))
			}
			c.check(c.kept())
			c.check(c.restrained(c.began))
			c.eventually("a minute without a write", c.silence())
			c.joinAll()
			c.eventually("all objects are there as before", func() error { return c.same(joined, "") })
			for _, p := range c.pairs() {
				p.works()
			}
			c.eventually("goroutines and files are as many as before", func() error { return c.grown(before) })
			c.partAll()
			// Who asked within ten minutes may ask again.
			c.eventually("nothing is left", func() error { return errors.Join(c.same(stranger, " liqo:peer:"), c.noNetwork()) })
			for _, text := range append(c.ended, c.packets.found...) {
				t.Error(text)
			}
		})
	}
}

// newChaos starts boxes that trust each other, with Deployments behind a Service on each: one whose pods are anywhere, and one for
// each of the others.
func newChaos(t *testing.T, n int) *chaos {
	c := &chaos{t: t, bed: bed.New(t), began: time.Now(), down: make(map[*box]bool), full: make(map[*box]bool), killed: make(map[*bed.Process]bool), proxies: make(map[*box]*bed.Process),
		decided: make(map[choice]bool), rows: make(map[*box]map[string]int)}
	c.boxes = newBoxes(t, c.bed, []string{"alder", "birch", "cedar"}[:n]...)
	startKubes(t, c.bed, nil, c.boxes...)
	staff(t, c.boxes...)
	c.packets = newPackets(c)
	for _, p := range c.pairs() {
		p.dump()
	}
	for _, x := range c.boxes {
		x.shell("mkdir -p " + chaosState + " && mount -t tmpfs -o size=16m,mode=0700 none " + chaosState)
		x.configure(chaosConfig)
		x.start()
		c.ids = append(c.ids, x.id())
	}
	for i, x := range c.boxes {
		c.check(c.directs(x))
		c.packets.hide(x)
		x.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
		x.tolerates()
		x.apply(deployment("spread", 4, "", "") + service("spread") + "---\n" + deployment("home", 1, x.host.Name, "") + service("home"))
		for j, y := range c.boxes {
			if i == j {
				continue
			}
			x.awaitFC("appears", c.ids[j], reachable)
			x.apply(deployment("on-"+y.host.Name, 2, y.asNode(), "") + service("on-"+y.host.Name))
			c.must(i, j, "accept")
		}
	}
	return c
}

// service is one in namespace shop for the pods of a Deployment.
func service(name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: shop}\nspec: {selector: {app: %[1]s}, ports: [{port: %[2]d, targetPort: %[3]d}]}\n", name, servicePort, answerPort)
}

// pairs are all two boxes of which the first may consume the second.
func (c *chaos) pairs() []*pair {
	var out []*pair
	for i, x := range c.boxes {
		for j, y := range c.boxes {
			if i != j {
				p := &pair{bed: c.bed, a: x, b: y}
				if len(c.ids) > 0 {
					p.aID, p.bID = c.ids[i], c.ids[j]
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// must has a person decide until it is acknowledged.
func (c *chaos) must(x, y int, verb string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s: %s %s", c.boxes[x].host.Name, verb, c.boxes[y].host.Name), func() error { return c.decide(x, y, verb) })
}

// all has each box decide about each other one.
func (c *chaos) all(verbs ...string) {
	c.t.Helper()
	for _, verb := range verbs {
		for x := range c.boxes {
			for y := range c.boxes {
				if x != y {
					c.must(x, y, verb)
				}
			}
		}
	}
}

// joinAll has every box consume every other one, and waits.
func (c *chaos) joinAll() {
	c.t.Helper()
	c.all("unblock", "accept", "connect")
	for _, x := range c.boxes {
		c.eventually(x.host.Name+": the Deployment has four replicas", func() error {
			_, err := x.tryShell("kubectl scale -n shop deployment/spread --replicas=4")
			return err
		})
	}
	c.eventually("all are joined", func() error {
		err := c.asDecided()
		for _, p := range c.pairs() {
			if fc, failed := p.a.full(p.bID); err == nil && (failed != nil || !fc.Status.Outgoing.Joined) {
				err = fmt.Errorf("%s is not joined with %s: %v", p.a.host.Name, p.b.host.Name, failed)
			}
		}
		return err
	})
	c.eventually("requests to Services are answered", c.packets.answered)
}

// partAll ends all peerings, and waits.
func (c *chaos) partAll() {
	c.t.Helper()
	c.all("disconnect")
	c.eventually("all have parted", c.asDecided)
}

// happens has the faults of a schedule happen, and returns when all of them are mended.
func (c *chaos) happens(plan []fault) {
	c.began, c.late = time.Now(), 0
	c.packets.watch()
	kinds := make(map[string]faultKind)
	for _, kind := range faultKinds() {
		kinds[kind.name] = kind
	}
	for _, f := range plan {
		c.mendUntil(f.at)
		c.wait(f.at)
		c.remember()
		c.logf("%v", f)
		if mend := kinds[f.kind].do(c, f); mend != nil {
			c.pending = append(c.pending, pending{f, mend})
		}
		c.raise()
	}
	c.mendUntil(1 << 62)
	c.logf("all is mended")
}

// mendUntil mends what is to be mended until then, each when its time has come.
func (c *chaos) mendUntil(until time.Duration) {
	slices.SortStableFunc(c.pending, func(a, b pending) int { return cmp.Compare(a.ends(), b.ends()) })
	for len(c.pending) > 0 && c.pending[0].ends() <= until {
		next := c.pending[0]
		c.pending = c.pending[1:]
		c.wait(next.ends())
		c.logf("mended: %s box %d", next.kind, next.box)
		next.mend()
		c.raise()
	}
}

// wait waits until a moment of the schedule. If it has passed, as on a busy machine, all that follows is as late, so that faults last
// as long as they are to.
func (c *chaos) wait(at time.Duration) {
	due := c.began.Add(at + c.late)
	c.late += max(0, time.Since(due))
	select {
	case <-time.After(time.Until(due)):
	case <-c.t.Context().Done():
	}
}

// raise starts what has ended, as systemd does.
func (c *chaos) raise() {
	c.packets.note(c.pending)
	for i, x := range c.boxes {
		planeBroken := slices.ContainsFunc(c.pending, func(p pending) bool {
			return p.box == i && (p.kind == "kill-etcd" || p.kind == "kill-apiserver" || p.kind == "stop-etcd")
		})
		if !planeBroken && over(x.kube.APIServer()) {
			c.logf("%s: the API server starts", x.host.Name)
			c.check(x.kube.Start(c.t.Context()))
		}
		if !planeBroken && !slices.ContainsFunc(c.pending, func(p pending) bool { return p.box == i && p.kind == "kill-proxy" }) {
			if err := c.directs(x); err != nil {
				c.logf("%s: kube-proxy does not start yet: %v", x.host.Name, err)
			}
		}
		if c.down[x] || !over(x.agent) {
			continue
		}
		if !c.killed[x.agent] && !c.full[x] {
			c.ended = append(c.ended, fmt.Sprintf("%s: the agent ended by itself: %.2000s", x.host.Name, lastLines(x.agent.Log(), 10)))
		}
		c.killed[x.agent] = true
		x.launch()
	}
}

func over(p *bed.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// eventually waits for a condition, asking once a second, and starts what has ended meanwhile.
func (c *chaos) eventually(what string, condition func() error) {
	c.t.Helper()
	began, said := time.Now(), ""
	for {
		err := condition()
		if err == nil {
			if took := time.Since(began); took > time.Second {
				c.logf("after %s: %s", took.Round(time.Second), what)
			}
			return
		}
		if time.Since(began) > soon {
			c.explain(fmt.Errorf("%s: %w", what, err))
		}
		if text := fmt.Sprintf("%.1500v", err); text != said && time.Since(began) > 20*time.Second {
			c.logf("not yet: %s: %s", what, text)
			said = text
		}
		c.raise()
		select {
		case <-time.After(time.Second):
		case <-c.t.Context().Done():
		}
	}
}

// explain ends the test with what all sides know.
func (c *chaos) explain(err error) {
	c.t.Helper()
	// An API server that gets no processor for ten seconds looks like one that hangs.
	for _, path := range []string{"/proc/loadavg", "/proc/pressure/cpu"} {
		text, failed := os.ReadFile(path)
		c.t.Logf("%s: %v %s", path, failed, strings.TrimSpace(string(text)))
	}
	for _, x := range c.boxes {
		for _, args := range [][]string{{"peers", "list", "--all"}, {"peers", "history", "--limit", "40"}, {"network", "list"}} {
			out, failed := x.cli(args...)
			c.t.Logf("%s: liqo-agent %v: %v\n%s", x.host.Name, args, failed, out)
		}
		out, failed := x.tryShell("kubectl get fc,peeringrequests,advertisements,nodes -o wide; kubectl get namespaces --show-labels; kubectl get pods -A -o wide")
		c.t.Logf("%s: %v\n%s", x.host.Name, failed, out)
	}
	c.t.Fatal(err)
}

func (c *chaos) logf(format string, args ...any) {
	c.t.Logf("%7s  %s", time.Since(c.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

func (c *chaos) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// history is what the agent of a box has in its history.
func (c *chaos) history(x *box) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	all, err := x.asks.History(ctx, "", time.Time{}, 0)
	rows := make(map[string]int)
	for _, e := range all {
		rows[fmt.Sprint(e.At.UnixMilli(), e.ID, e.Kind, e.Detail)]++
	}
	return rows, err
}

// remember notes the histories of the agents that answer at once.
func (c *chaos) remember() {
	for i, x := range c.boxes {
		if c.down[x] || slices.ContainsFunc(c.pending, func(p pending) bool { return p.box == i && p.kind == "stop-agent" }) {
			continue
		}
		if rows, err := c.history(x); err == nil {
			c.rows[x] = rows
		}
	}
}

// kept checks that nothing of the histories is lost.
func (c *chaos) kept() error {
	for _, x := range c.boxes {
		now, err := c.history(x)
		if err != nil {
			return err
		}
		for row, n := range c.rows[x] {
			if now[row] < n {
				return fmt.Errorf("%s: the history has lost %s", x.host.Name, row)
			}
		}
	}
	return nil
}
