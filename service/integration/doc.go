// Package integration tests package service with a real systemd: one that is booted as the first process of
// namespaces of its own, over a copy-on-write view of this machine's files. It holds no code but its tests, apart
// from those of package service because these need root and a systemd, and are skipped with the reason elsewhere.
//
// The machine's own systemd, /etc and /run are out of reach. All that is outside of those namespaces is one control
// group, which is removed.
package integration
