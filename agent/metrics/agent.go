package metrics

import (
	"runtime"
	"time"
)

// agentFamilies are about the process and its configuration.
var agentFamilies = []family{
	{name: "build_info", kind: gauge, labels: []string{"version", "go_version"}, help: "Version of the agent, always 1.",
		collect: func(s *Snapshot, add add) { add(1, s.Agent.Version, runtime.Version()) }},
	{name: "identity_info", kind: gauge, labels: []string{"cluster_id", "cluster_name", "fingerprint"},
		help:    "ID and name of this cluster and the fingerprint of its key, always 1.",
		collect: func(s *Snapshot, add add) { add(1, s.Agent.ClusterID, s.Agent.ClusterName, s.Agent.Fingerprint) }},
	{name: "ready", kind: gauge, help: "1 while all parts of the agent run, 0 while one waits for its restart.",
		collect: yes(func(s *Snapshot) bool { return s.Agent.Ready })},
	{name: "part_restarts_total", kind: counter, labels: []string{"part"}, help: "Restarts of parts of the agent after a failure. A part without one has no series.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Agent.Restarts })},
	{name: "sessions_total", kind: counter, help: "Sessions of the agent: one at its start, and one for each new identity or key, and for some settings.",
		collect: number(func(s *Snapshot) uint64 { return s.Agent.Sessions })},
	{name: "config_last_reload_successful", kind: gauge, help: "1 if the last reload of the configuration succeeded, 0 if an older one is in use.",
		collect: yes(func(s *Snapshot) bool { return s.Agent.ReloadOK })},
	{name: "config_last_reload_success_timestamp_seconds", kind: gauge, help: "Unix time of the last successful reload of the configuration.",
		collect: moment(func(s *Snapshot) time.Time { return s.Agent.Reloaded })},
	{name: "health_problem", kind: gauge, labels: []string{"code", "severity"}, help: "1 while a problem exists; see health.md for the codes.",
		collect: problems},
}

// problems tells each code once: there may be several problems of one.
func problems(s *Snapshot, add add) {
	type key struct{ code, severity string }
	active := make(map[key]bool)
	for _, p := range s.Problems {
		k := key{p.Code, p.Severity}
		active[k] = active[k] || p.Active
	}
	for k, is := range active {
		add(truth(is), k.code, k.severity)
	}
}
