package metrics

import "time"

// keepingFamilies are about certificates, the key and the database.
var keepingFamilies = []family{
	{name: "certificate_expiry_timestamp_seconds", kind: gauge, labels: []string{"certificate"},
		help: "When a certificate ends, as Unix time: fleet-ca, fleet (ours, by it), endpoint (endpoint.certificate), kubelet. Those that the cluster's key signs for a day are not among them.",
		collect: func(s *Snapshot, add add) {
			for name, ends := range s.Trust.Certificates {
				seconds(ends, add, name)
			}
		}},
	{name: "key_created_timestamp_seconds", kind: gauge, help: "When the cluster's key was made, as Unix time.",
		collect: moment(func(s *Snapshot) time.Time { return s.Trust.KeyMade })},
	{name: "key_successions", kind: gauge, help: "Earlier keys from which peers follow to the present one.",
		collect: number(func(s *Snapshot) int { return s.Trust.Successions })},
	{name: "state_transactions_total", kind: counter, help: "Write transactions of the database. In steady state there are none.",
		collect: number(func(s *Snapshot) uint64 { return s.State.Transactions })},
	{name: "state_errors_total", kind: counter, help: "Write transactions of the database that failed.",
		collect: number(func(s *Snapshot) uint64 { return s.State.Errors })},
	{name: "state_volatile", kind: gauge, help: "1 while nothing is kept because the state directory cannot be written.",
		collect: yes(func(s *Snapshot) bool { return s.State.Volatile })},
	{name: "state_database_bytes", kind: gauge, help: "The size of the database with its log.",
		collect: func(s *Snapshot, add add) {
			if s.State.DatabaseBytes >= 0 {
				add(float64(s.State.DatabaseBytes))
			}
		}},
	{name: "state_filesystem_free_bytes", kind: gauge, help: "Free space where the state directory is, for the agent's user.",
		collect: func(s *Snapshot, add add) {
			if s.State.SpaceKnown {
				add(float64(s.State.FreeBytes))
			}
		}},
	{name: "state_filesystem_size_bytes", kind: gauge, help: "The size of the file system that the state directory is on.",
		collect: func(s *Snapshot, add add) {
			if s.State.SpaceKnown {
				add(float64(s.State.SizeBytes))
			}
		}},
}
