package peering

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// Explain writes what is known and pending about each cluster, for people who look
// for a fault: when it was looked at and when it will be again, what would be done
// now, and how its side stands. Something that would be done and that nobody is
// going to do is a fault of the agent. There are no secrets in it. Any goroutine may
// call it at any time.
func (c *Controller) Explain(w io.Writer) error {
	s, now := c.current(), c.cfg.Now()
	ids := make(map[peer.ClusterID]bool)
	for _, id := range c.cfg.Registry.IDs() {
		ids[id] = true
	}
	var out strings.Builder
	fmt.Fprintf(&out, "at %s; API server: ", now.UTC().Format(time.RFC3339))
	if s == nil {
		fmt.Fprintf(&out, "none: %s\n", c.link.Status().LastError)
	} else {
		fmt.Fprintf(&out, "connected; %d clusters and %d objects wait for a worker\n", s.queue.Len(), s.named.Len())
		for _, about := range [][]peer.ClusterID{s.foreign.IDs(), s.requests.IDs(), s.offers.IDs()} {
			for _, id := range about {
				ids[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		c.explain(&out, s, id, now)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (c *Controller) explain(out *strings.Builder, s *session, id peer.ClusterID, now time.Time) {
	m := c.peers.get(id)
	fmt.Fprintf(out, "\ncluster %s\n", id)
	if m.looked.IsZero() {
		out.WriteString("never looked at")
	} else {
		fmt.Fprintf(out, "looked at %v ago", now.Sub(m.looked).Round(time.Millisecond))
	}
	var next time.Time
	if s != nil {
		next, _ = s.queue.Due(id)
	}
	if next.IsZero() {
		out.WriteString(", and not before something changes")
	} else {
		fmt.Fprintf(out, ", next in %v at the latest", time.Until(next).Round(time.Millisecond))
	}
	if m.failed != nil {
		fmt.Fprintf(out, "; it failed: %v", m.failed)
	}
	obs := c.peek(s, id)
	if c.cfg.Sharing != nil && !obs.NodeKnown {
		out.WriteString("; how our use of it stands is not known")
	}
	out.WriteByte('\n')
	if s != nil {
		var kinds []string
		for _, a := range plan.Plan(obs, now).Actions {
			kinds = append(kinds, string(a.Kind))
		}
		fmt.Fprintf(out, "would do now: %s\n", strings.Join(kinds, ", "))
	}
	if obs.Peer != nil {
		fmt.Fprintf(out, "peer: %s, source %s\n", obs.Peer.Phase, obs.Peer.Source)
	}
	st := obs.Policy
	fmt.Fprintf(out, "decided: trusted=%v distrusted=%v blocked=%v connect=%v generation=%d observedGeneration=%d accept=%s asked=%v ended=%q joined=%v served=%v\n",
		st.Pin != nil, st.Distrusted, st.Blocked, st.Connect == plan.Yes, st.Generation, obs.ObservedGeneration, st.Accept.Phase, st.Asked, st.Ended, st.LastJoined, st.LastServed)
	for _, fc := range obs.Objects {
		fmt.Fprintf(out, "ForeignCluster %s: version %s, join=%v by %q, trustMode=%s by %q, finalizers %q, deleted=%v\n", fc.Name, fc.ResourceVersion,
			fc.Spec.Join, obs.Owners[fc.Name].Join.Manager, fc.Spec.TrustMode, obs.Owners[fc.Name].TrustMode.Manager, fc.Finalizers, fc.DeletionTimestamp != nil)
	}
	v := obs.View()
	for _, way := range []struct {
		name string
		plan.Direction
	}{{"outgoing", v.Outgoing}, {"incoming", v.Incoming}} {
		var missing []string
		for _, step := range way.Steps {
			if !step.Done {
				missing = append(missing, step.Name)
			}
		}
		fmt.Fprintf(out, "%s: wanted=%v joined=%v %s; missing: %s\n", way.name, way.Wanted, way.Joined, way.Reason, strings.Join(missing, ", "))
	}
	fmt.Fprintf(out, "away %v, quiet %v, tearing down %v, draining %v\n", obs.Away, obs.Quiet, obs.TearingDown, obs.Draining)
	if l := obs.Liqo; obs.Engine.Liqo != nil {
		fmt.Fprintf(out, "Liqo: consuming %+v, serving %+v\n", l.Consuming, l.Serving)
	}
	out.WriteString(c.remote.Explain(id))
}
