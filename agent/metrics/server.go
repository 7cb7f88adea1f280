package metrics

import "liqo.io/agent/kube/tally"

// endpointFamilies are about the HTTPS port that peers connect to.
var endpointFamilies = []family{
	{name: "endpoint_connections", kind: gauge, labels: []string{"from"}, help: "Open connections at the endpoint, from trusted peers and from strangers.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Endpoint.PeerConnections), "peer")
			add(float64(s.Endpoint.StrangerConnections), "stranger")
		}},
	{name: "endpoint_connections_total", kind: counter, help: "Connections that the endpoint accepted.",
		collect: number(func(s *Snapshot) uint64 { return s.Endpoint.Accepted })},
	{name: "endpoint_requests_total", kind: counter, help: "Requests that the endpoint answered, including refused ones.",
		collect: number(func(s *Snapshot) uint64 { return s.Endpoint.Requests })},
	{name: "endpoint_refused_total", kind: counter, labels: []string{"reason"}, help: "Connections and requests that the endpoint refused, by reason; see troubleshooting.md.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Endpoint.Refused })},
	{name: "gateway_requests_total", kind: counter, labels: []string{"verb", "result"}, help: "Requests of peers that the gateway forwarded to the API server, by verb and result.",
		collect: func(s *Snapshot, add add) { counts(s.Endpoint.Gateway, add) }},
	{name: "gateway_request_duration_seconds", kind: histogram, help: "Time until the API server began to answer a request of a peer, without watches.",
		took: func(s *Snapshot) tally.Distribution { return s.Endpoint.GatewayTook }},
}

// apiServerFamilies are about the local API server.
var apiServerFamilies = []family{
	{name: "apiserver_enabled", kind: gauge, help: "0 if the agent is configured to run without an API server (cluster.kubeconfig), else 1.",
		collect: yes(func(s *Snapshot) bool { return s.APIServer.Enabled })},
	{name: "apiserver_connected", kind: gauge, help: "1 while the API server answers and the caches of the agent are in sync.",
		collect: yes(func(s *Snapshot) bool { return s.APIServer.Connected })},
	{name: "apiserver_connections_total", kind: counter, help: "Established connections to the API server. More than one means that a connection was lost.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.Connections })},
	{name: "apiserver_requests_total", kind: counter, labels: []string{"verb", "result"},
		help:    "Requests of the agent to the API server, by verb and result. Each restart of a watch counts as one.",
		collect: func(s *Snapshot, add add) { counts(s.APIServer.Requests, add) }},
	{name: "apiserver_request_duration_seconds", kind: histogram, help: "Time until the API server began to answer a request of the agent, without watches.",
		took: func(s *Snapshot) tally.Distribution { return s.APIServer.Took }},
	{name: "apiserver_writes_total", kind: counter, help: "Requests of the agent that may change objects. Only leases in steady state.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.Writes })},
	{name: "apiserver_peer_writes_total", kind: counter, help: "Requests of peers that may change objects, forwarded by the gateway.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.PeerWrites })},
	{name: "foreignclusters", kind: gauge, help: "Known ForeignClusters in the API server.",
		collect: number(func(s *Snapshot) int { return s.APIServer.ForeignClusters })},
	{name: "reconciles_total", kind: counter, labels: []string{"result"},
		help: "Reconciles of clusters, by result: ok, retry (failed, with a retry), or rejected (the API server considers an object invalid).",
		collect: func(s *Snapshot, add add) {
			add(float64(s.APIServer.Reconciled), "ok")
			add(float64(s.APIServer.Retried), "retry")
			add(float64(s.APIServer.Rejected), "rejected")
		}},
}
