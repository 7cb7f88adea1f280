package metrics

import "liqo.io/agent/kube/tally"

// endpointFamilies are about the HTTPS port that peers connect to.
var endpointFamilies = []family{
	{name: "endpoint_connections", kind: gauge, labels: []string{"from"}, help: "Open connections at the endpoint: from peers that are let in, and from strangers.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Endpoint.PeerConnections), "peer")
			add(float64(s.Endpoint.StrangerConnections), "stranger")
		}},
	{name: "endpoint_connections_total", kind: counter, help: "Connections that the endpoint took.",
		collect: number(func(s *Snapshot) uint64 { return s.Endpoint.Accepted })},
	{name: "endpoint_requests_total", kind: counter, help: "Requests that the endpoint answered, those that it refused included.",
		collect: number(func(s *Snapshot) uint64 { return s.Endpoint.Requests })},
	{name: "endpoint_refused_total", kind: counter, labels: []string{"reason"}, help: "Connections and requests that the endpoint refused, by reason; see troubleshooting.md.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Endpoint.Refused })},
	{name: "gateway_requests_total", kind: counter, labels: []string{"verb", "result"}, help: "Requests of peers that were passed on to the API server, by verb and result.",
		collect: func(s *Snapshot, add add) { counts(s.Endpoint.Gateway, add) }},
	{name: "gateway_request_duration_seconds", kind: histogram, help: "How long the API server took to begin its answer to a request of a peer, watches apart.",
		took: func(s *Snapshot) tally.Distribution { return s.Endpoint.GatewayTook }},
}

// apiServerFamilies are about the local API server.
var apiServerFamilies = []family{
	{name: "apiserver_enabled", kind: gauge, help: "0 when the agent is to work without an API server (cluster.kubeconfig), else 1.",
		collect: yes(func(s *Snapshot) bool { return s.APIServer.Enabled })},
	{name: "apiserver_connected", kind: gauge, help: "1 while the API server answers and what the agent needs of it is known.",
		collect: yes(func(s *Snapshot) bool { return s.APIServer.Connected })},
	{name: "apiserver_connections_total", kind: counter, help: "How often a connection to the API server came about. More than one means that it was lost in between.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.Connections })},
	{name: "apiserver_requests_total", kind: counter, labels: []string{"verb", "result"},
		help:    "Requests of the agent to the API server, by verb and result. Each restart of a watch is one with verb watch.",
		collect: func(s *Snapshot, add add) { counts(s.APIServer.Requests, add) }},
	{name: "apiserver_request_duration_seconds", kind: histogram, help: "How long the API server took to begin its answer to a request of the agent, watches apart.",
		took: func(s *Snapshot) tally.Distribution { return s.APIServer.Took }},
	{name: "apiserver_writes_total", kind: counter, help: "Requests of the agent that may change something. In steady state only leases do.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.Writes })},
	{name: "apiserver_peer_writes_total", kind: counter, help: "Requests of peers that may change something, which the gateway passed on.",
		collect: number(func(s *Snapshot) uint64 { return s.APIServer.PeerWrites })},
	{name: "foreignclusters", kind: gauge, help: "ForeignClusters in the API server, as far as they are known.",
		collect: number(func(s *Snapshot) int { return s.APIServer.ForeignClusters })},
	{name: "reconciles_total", kind: counter, labels: []string{"result"},
		help: "Looks at a cluster and what is to be done about it: ok, retry when it failed and is tried again, rejected when the API server takes an object for invalid.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.APIServer.Reconciled), "ok")
			add(float64(s.APIServer.Retried), "retry")
			add(float64(s.APIServer.Rejected), "rejected")
		}},
}
