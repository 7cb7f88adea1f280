package metrics

import "time"

// keepingFamilies are about certificates, the key and the database.
var keepingFamilies = []family{
	{name: "certificate_expiry_timestamp_seconds", kind: gauge, labels: []string{"certificate"},
		help: "Unix time when a certificate expires: fleet-ca, fleet (of this cluster, signed by it), endpoint (endpoint.certificate), kubelet. Not those that the cluster key signs for a day.",
		collect: func(s *Snapshot, add add) {
			for name, ends := range s.Trust.Certificates {
				seconds(ends, add, name)
			}
		}},
	{name: "key_created_timestamp_seconds", kind: gauge, help: "Unix time when the cluster key was created.",
		collect: moment(func(s *Snapshot) time.Time { return s.Trust.KeyMade })},
	{name: "key_successions", kind: gauge, help: "Earlier keys of the cluster that lead peers to the current one.",
		collect: number(func(s *Snapshot) int { return s.Trust.Successions })},
	{name: "state_transactions_total", kind: counter, help: "Write transactions of the database. None in steady state.",
		collect: number(func(s *Snapshot) uint64 { return s.State.Transactions })},
	{name: "state_errors_total", kind: counter, help: "Failed write transactions of the database.",
		collect: number(func(s *Snapshot) uint64 { return s.State.Errors })},
	{name: "state_volatile", kind: gauge, help: "1 while the state is only in memory because the state directory is not writable.",
		collect: yes(func(s *Snapshot) bool { return s.State.Volatile })},
	{name: "state_database_bytes", kind: gauge, help: "Size of the database and its log.",
		collect: func(s *Snapshot, add add) {
			if s.State.DatabaseBytes >= 0 {
				add(float64(s.State.DatabaseBytes))
			}
		}},
	{name: "state_filesystem_free_bytes", kind: gauge, help: "Free space on the file system of the state directory, for the agent's user.",
		collect: func(s *Snapshot, add add) {
			if s.State.SpaceKnown {
				add(float64(s.State.FreeBytes))
			}
		}},
	{name: "state_filesystem_size_bytes", kind: gauge, help: "Size of the file system of the state directory.",
		collect: func(s *Snapshot, add add) {
			if s.State.SpaceKnown {
				add(float64(s.State.SizeBytes))
			}
		}},
}
