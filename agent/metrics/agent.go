package metrics

import (
	"runtime"
	"time"
)

// agentFamilies are about the process and its configuration.
var agentFamilies = []family{
	{name: "build_info", kind: gauge, labels: []string{"version", "go_version"}, help: "Which build of the agent this is; always 1.",
		collect: func(s *Snapshot, add add) { add(1, s.Agent.Version, runtime.Version()) }},
	{name: "identity_info", kind: gauge, labels: []string{"cluster_id", "cluster_name", "fingerprint"},
		help:    "Which cluster this is, and the fingerprint of its key; always 1.",
		collect: func(s *Snapshot, add add) { add(1, s.Agent.ClusterID, s.Agent.ClusterName, s.Agent.Fingerprint) }},
	{name: "ready", kind: gauge, help: "1 while every part of the agent runs; 0 while one waits to be started again.",
		collect: yes(func(s *Snapshot) bool { return s.Agent.Ready })},
	{name: "part_restarts_total", kind: counter, labels: []string{"part"}, help: "How often a part of the agent failed and was started again. A part that never did has no series.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Agent.Restarts })},
	{name: "sessions_total", kind: counter, help: "How often the parts were made: once at start, and again for another identity, another key and some settings.",
		collect: number(func(s *Snapshot) uint64 { return s.Agent.Sessions })},
	{name: "config_last_reload_successful", kind: gauge, help: "1 if the configuration was good when it was last read; 0 if an older one is in use.",
		collect: yes(func(s *Snapshot) bool { return s.Agent.ReloadOK })},
	{name: "config_last_reload_success_timestamp_seconds", kind: gauge, help: "When the configuration was last read and good, as Unix time.",
		collect: moment(func(s *Snapshot) time.Time { return s.Agent.Reloaded })},
	{name: "health_problem", kind: gauge, labels: []string{"code", "severity"}, help: "1 while a problem is there; see health.md for the codes.",
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
