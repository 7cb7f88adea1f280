//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/internal/bed"
)

const configPathAPI = "/apis/config.liqo.io/v1alpha1/clusterconfigs/liqo-configuration"

// problem returns the problem of a kind that status shows, nil for none.
func (x *box) problem(k *health.Kind) (*control.Problem, error) {
	st, err := x.status()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(st.Problems, func(p control.Problem) bool { return p.Code == k.Code })
	if i < 0 {
		return nil, nil
	}
	return &st.Problems[i], nil
}

// hasProblem reports why a problem is not shown as it is to be.
func (x *box) hasProblem(k *health.Kind, want bool) error {
	p, err := x.problem(k)
	switch {
	case err != nil:
		return err
	case (p != nil) != want:
		return fmt.Errorf("problem %s: %+v", k.Code, p)
	case p != nil && (p.Severity != string(k.Severity) || p.Text == "" || p.Remedy == "" || p.Since.IsZero()):
		return fmt.Errorf("not whole: %+v", p)
	}
	return nil
}

// healthy reports why the ClusterConfig does not say so.
func (x *box) healthy(status api.ConditionStatus, reason string) error {
	c, found, err := get[api.ClusterConfig](x, configPathAPI)
	if err != nil || !found {
		return errors.Join(err, errors.New("there is no ClusterConfig"))
	}
	if h := c.Status.Condition(api.ConditionHealthy); h == nil || h.Status != status || h.Reason != reason {
		return fmt.Errorf("it says %+v", h)
	}
	return nil
}

// eventsAbout returns the reasons of the Events about a ForeignCluster.
func (x *box) eventsAbout(id string) ([]string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	body, err := x.kube.Request(ctx, "GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name="+id, "", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []struct{ Reason string } }
	err = json.Unmarshal(body, &list)
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason)
	}
	slices.Sort(out)
	return out, err
}

func (x *box) awaitEvents(id string, reasons ...string) {
	x.t.Helper()
	x.eventually(fmt.Sprintf("%s: Events %v about %s", x.host.Name, reasons, id), func() error {
		all, err := x.eventsAbout(id)
		for _, reason := range reasons {
			if err == nil && !slices.Contains(all, reason) {
				err = fmt.Errorf("there are %v", all)
			}
		}
		return err
	})
}

// TestHealth: what is the matter shows where people look, with its code, and goes
// when it is over; what happens to a peering is told by Events.
func TestHealth(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	for _, x := range []*box{p.a, p.b} {
		x.eventually("all is well", func() error { return x.healthy(api.ConditionTrue, "NoProblems") })
	}
	p.join()
	p.a.awaitEvents(p.bID, "Joined", "OfferAccepted", "NetworkConnected")
	p.b.awaitEvents(p.aID, "Serving", "NetworkConnected")
	if out := p.a.kubectl("describe", "foreignclusters", p.bID); !strings.Contains(out, "Its offer is accepted here.") {
		t.Errorf("kubectl describe shows no Events:\n%s", out)
	}

	// It takes its grace, during which there is more to see.
	if err := p.b.kube.Kill(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	if err := p.b.hasProblem(health.APIUnreachable, false); err != nil {
		t.Errorf("at once: %v", err)
	}

	t.Run("the ClusterConfig", func(t *testing.T) {
		p.a.configure("[trust]\naccept = \"all\"\n")
		p.a.reload()
		p.a.eventually("the problem", func() error { return p.a.hasProblem(health.Open, true) })
		p.a.eventually("the condition", func() error { return p.a.healthy(api.ConditionFalse, health.Open.Reason()) })
		if out := p.a.kubectl("get", "clusterconfigs"); !strings.Contains(out, "HEALTHY") || !strings.Contains(out, "False") {
			t.Errorf("kubectl shows %s", out)
		}
		p.a.configure("")
		p.a.reload()
		p.a.eventually("no problem", func() error { return p.a.hasProblem(health.Open, false) })
		p.a.eventually("the condition", func() error { return p.a.healthy(api.ConditionTrue, "NoProblems") })
		for _, line := range []string{"problem: anybody who can reach this agent", "problem solved: " + health.Open.Title} {
			p.a.logged(line) // it is shown before it is logged
			if n := strings.Count(p.a.agent.Log(), line); n != 1 {
				t.Errorf("the log says %d times %q", n, line)
			}
		}
	})

	t.Run("a restart tells nothing again", func(t *testing.T) {
		before, err := p.a.eventsAbout(p.bID)
		if err != nil {
			t.Fatal(err)
		}
		p.a.stop()
		p.a.start()
		p.a.awaitStatus("is joined", p.bID, outgoing(true))
		p.a.eventually("the connection", func() error {
			if st, err := p.a.status(); err != nil || !st.Kubernetes.Connected || !strings.HasPrefix(st.Kubernetes.Version, "v1.") || st.Protocol == "" {
				return fmt.Errorf("%+v, %v", st.Kubernetes, err)
			}
			return nil
		})
		p.a.eventually("it has looked at the peer", func() error {
			got, err := p.a.scrape("unix", p.a.host.Path(socketPath))
			if looks := got[`liqo_agent_reconciles_total{result="ok"}`]; err == nil && looks == 0 {
				err = errors.New("not yet")
			}
			return err
		})
		after, err := p.a.eventsAbout(p.bID)
		// What a machine that stands still loses, and finds again, is told.
		passing := func(reason string) bool {
			return slices.Contains([]string{"PeerUnreachable", "PeerReachable", "NetworkDown", "NetworkConnected"}, reason)
		}
		before, after = slices.DeleteFunc(before, passing), slices.DeleteFunc(after, passing)
		if err != nil || !slices.Equal(before, after) {
			t.Errorf("before %v, after %v (%v)", before, after, err)
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), health.APIUnreachable.Grace+soon)
	defer cancel()
	if err := bed.Poll(ctx, func() error { return p.b.hasProblem(health.APIUnreachable, true) }); err != nil {
		t.Fatalf("the API server is away for %v: %v", time.Since(stopped), err)
	}
	if passed := time.Since(stopped); passed < health.APIUnreachable.Grace-5*time.Second {
		t.Errorf("it is told after %v", passed)
	}
	if out, err := p.b.cli("status"); err != nil || !strings.Contains(out, "error: the API server") || !strings.Contains(out, "(api-unreachable, ") {
		t.Errorf("status shows (%v)\n%s", err, out)
	}
	if err := p.b.kube.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.b.eventually("it is over", func() error { return p.b.hasProblem(health.APIUnreachable, false) })
	p.b.eventually("the condition", func() error { return p.b.healthy(api.ConditionTrue, "NoProblems") })

	p.a.mustCLI("peers", "disconnect", p.bID)
	p.a.awaitEvents(p.bID, "Disconnected")
	p.b.awaitEvents(p.aID, "ServingEnded")
}
