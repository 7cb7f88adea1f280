package metrics

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"liqo.io/agent/kube/tally"
)

// at is the time of everything in a full snapshot.
var at = time.UnixMilli(1_790_000_000_500)

// full is a snapshot in which every metric has a value.
func full() Snapshot {
	took := tally.Distribution{Count: 3, Seconds: 1.5, Buckets: map[float64]uint64{0.1: 1, 1: 2}}
	requests := []tally.Count{{Verb: tally.Get, Result: tally.OK, N: 7}, {Verb: tally.Patch, Result: tally.Forbidden, N: 1}}
	return Snapshot{
		Agent: Agent{
			Version: "v1", ClusterID: "c0", ClusterName: "here", Fingerprint: "f0", Ready: true, Restarts: map[string]uint64{"mDNS": 2},
			Sessions: 1, ReloadOK: true, Reloaded: at,
		},
		Discovery: Discovery{
			Links: 2, Phases: map[string]int{"Present": 3, "Lost": 1}, Conflicts: 1, Refused: 4, Sightings: 100, ChecksOK: 90, ChecksFailed: 3,
			Received: 1000, Sent: 200, SocketDrops: 5, Dropped: map[string]uint64{"off-link": 6}, Instances: 3, Announced: true,
			Domains: map[string]int{"Found": 1, "": 1}, Lookups: map[string]uint64{"Found": 8, "Timeout": 1},
		},
		Endpoint: Endpoint{
			PeerConnections: 2, StrangerConnections: 1, Accepted: 50, Requests: 400, Refused: map[string]uint64{"not-trusted": 9},
			Gateway: requests, GatewayTook: took,
		},
		APIServer: APIServer{
			Enabled: true, Connected: true, Connections: 2, Requests: requests, Took: took, Writes: 11, PeerWrites: 12, ForeignClusters: 4,
			Reconciled: 70, Retried: 5, Rejected: 1,
		},
		Peerings: Peerings{OutgoingWanted: 3, OutgoingJoined: 2, IncomingWanted: 1, IncomingJoined: 1, Requests: 1, Invites: 1, InviteEnds: at},
		Names:    Names{Queries: 9, Rewritten: 5, Refused: map[string]uint64{"foreign-name": 2}},
		Offer: Offer{
			Pool: Amounts{"cpu": 3.5, "memory": 1 << 30}, Accepted: 2, Pending: 1, PodCreation: took, PodRetries: 13, TokensIssued: 16, TokensRefused: 2, LeasesRenewed: 14, LeasesFailed: 1,
		},
		Trust: Trust{Certificates: map[string]time.Time{"fleet-ca": at, "endpoint": {}}, KeyMade: at, Successions: 1},
		State: State{Transactions: 15, Errors: 1, DatabaseBytes: 4096, FreeBytes: 1 << 20, SizeBytes: 1 << 30, SpaceKnown: true},
		Peers: []Peer{{
			ID: "p1", Name: "barn", OutgoingWanted: true, OutgoingJoined: true, IncomingWanted: true, Reachable: true, LastSeen: at, Failures: 2,
			Provider: &Provider{HasNode: true, Ready: true, Offered: Amounts{"cpu": 2}, Bound: 5, Running: 2, Pending: 2, Refused: 1, Ending: 1},
			Network:  &Network{Connected: true, Sent: 1, Received: 2, Dropped: map[string]uint64{"disconnected": 3}},
			Consumer: &Consumer{Promised: Amounts{"cpu": 2, "pods": 10}, Used: Amounts{"cpu": 0.5}, Namespaces: 1, Pods: 4},
		}},
		Problems: []Problem{
			{Code: "disk-full", Severity: "error"}, {Code: "peer-unreachable", Severity: "warning", Active: true},
			{Code: "peer-unreachable", Severity: "warning", Active: true}, {Code: "peer-unreachable", Severity: "warning"},
		},
	}
}

// many is a snapshot with a number of peers, every tenth of them joined.
func many(peers int) Snapshot {
	s := full()
	one := s.Peers[0]
	s.Peers = nil
	for i := range peers {
		p := one
		p.ID, p.Name = fmt.Sprintf("peer-%05d", i), fmt.Sprintf("box %d", i)
		p.OutgoingJoined, p.IncomingJoined = i%10 == 0, false
		if i%3 == 0 {
			p.Provider, p.Consumer = nil, nil
		}
		s.Peers = append(s.Peers, p)
	}
	return s
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// gather scrapes what a snapshot gives, by name.
func gather(t testing.TB, s Snapshot) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := New(func() Snapshot { return s }, quiet()).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*dto.MetricFamily)
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// value returns that of the series with those labels, name and value in turns.
func value(t testing.TB, from map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range from[name].GetMetric() {
		if matches(m, labels) {
			switch {
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			case m.Counter != nil:
				return m.Counter.GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Errorf("there is no %s %v", name, labels)
	return 0
}

func matches(m *dto.Metric, labels []string) bool {
	has := make(map[string]string)
	for _, l := range m.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}
