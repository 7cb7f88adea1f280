//go:build linux

package e2e

import (
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
)

// The whole agent with the race detector in it, through most of what it does: the other tests of this package
// run it as it is shipped, and the detector in their own process sees nothing of it.
func TestRaces(t *testing.T) {
	t.Parallel()
	bd := bed.New(t)
	boxes := newClusters(t, bd, "alder", "birch")
	p := &pair{bed: bd, a: boxes[0], b: boxes[1]}
	a, b := p.a, p.b
	staff(t, a, b)
	agents := make(map[string][]*bed.Process)
	start := func(x *box) {
		x.start()
		agents[x.host.Name] = append(agents[x.host.Name], x.agent)
	}
	for _, x := range boxes {
		x.bin = bed.Binary(t, "liqo-agent-race")
		x.configure("[log]\nlevel = \"debug\"\n[metrics]\nlisten = \"127.0.0.1:6448\"\n")
		start(x)
	}
	p.aID, p.bID = a.id(), b.id()
	a.awaitFC("appears", p.bID, reachable)
	b.awaitFC("appears", p.aID, reachable)
	p.join()
	a.awaitNode(p.b.asNode(), true)
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.tolerates()
	a.kubectl("create", "configmap", "-n", "shop", "settings", "--from-literal=color=green")
	a.apply(deployment("web", 6, "", "        envFrom: [{configMapRef: {name: settings}}]\n"))
	p.settled(3)

	// Everything that is asked from outside, while things change.
	a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=10")
	for _, x := range boxes {
		x.mustCLI("status")
		_, _ = x.cli("doctor") // what it finds is not the question here
		x.mustCLI("peers", "list", "--all")
		if code, _, err := x.ask("tcp", "127.0.0.1:6448", "/metrics"); code != 200 || err != nil {
			t.Errorf("%s: metrics: %d, %v", x.host.Name, code, err)
		}
		x.reload()
	}
	a.kubectl("patch", "configmap", "-n", "shop", "settings", "--type", "merge", "-p", `{"data":{"color":"red"}}`)
	p.settled(-1)
	b.mustCLI("key", "rotate", "--yes")
	a.awaitNode(p.b.asNode(), true)
	p.settled(-1)

	// One of them comes back, on another address.
	b.stop()
	b.host.Link("eth0").SetAddress("10.77.0.99/24")
	start(b)
	p.settled(-1)
	a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
	a.gone("/api/v1/nodes/" + p.b.asNode())
	for _, x := range boxes {
		x.stop() // which fails if the detector has found something: the exit code is 66 then
		for _, agent := range agents[x.host.Name] {
			if log := agent.Log(); strings.Contains(log, "WARNING: DATA RACE") {
				t.Errorf("%s: a data race, see its log", x.host.Name)
			}
		}
	}
}
