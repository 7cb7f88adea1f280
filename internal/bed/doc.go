// Package bed builds small local networks of boxes for tests, benchmarks and the demo: every host
// is a set of Linux namespaces with a real network stack, a real Kubernetes control plane if
// wanted and real neighbours such as avahi-daemon.
//
// # Nothing is left behind and nothing is touched
//
// [Enter] (for tests: [Main]) runs the calling program again as the first process of fresh PID,
// network, mount, UTS and IPC namespaces, and of a user namespace when not started by root. Hosts,
// bridges, processes, mounts and files, which are all on a tmpfs that only those namespaces see,
// go with that process however it ends, SIGKILL included. The machine's own interfaces, mounts
// and processes are out of reach.
//
// # What a host is
//
// A [Host] has network, mount and UTS namespaces of its own: its own links, /run, hostname,
// machine-id, and copy-on-write views of /etc, /var/lib and /usr/local, so that programs run with
// their usual paths and many of them side by side. Like every K3s box it has a cni0 with the same
// 10.42.0.1/24, unless a [HostSpec] says otherwise. Its links are plugged into a [LAN]: a bridge in a network namespace that belongs to
// no host. Process IDs are shared by all hosts of a program.
//
// # Use
//
//	func TestMain(m *testing.M) { bed.Main(m) }
//
//	func TestNeighbours(t *testing.T) {
//		b := bed.New(t)
//		a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
//		k := a.StartKube(t.Context())
//		agent := a.Start(bed.Cmd{Args: []string{bed.Binary(t, "liqo-agent"), "run"}})
//		...
//		c.Link("eth0").Unplug()
//	}
//
// Set-up methods end the test themselves when they fail, so they belong on the test's goroutine;
// methods that return an error may be called from any goroutine. What the processes of a host
// wrote is printed when the test fails.
//
// # What it must not do
//
// It knows nothing about liqo-agent beyond the name of its binary, never skips a test, and
// never waits for a fixed time: readiness is a condition polled until a deadline.
//
// Goroutines: one per process started (waits for its end), one per [Capture] (reads its socket), those of an HTTP server while [Kube.Starting] answers,
// and one, with an operating system thread that ends with it, for the duration of each
// [Host.Do].
package bed
