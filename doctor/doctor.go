package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Status is how something stands.
type Status string

// The statuses.
const (
	// OK: it is as it should be.
	OK Status = "ok"
	// Info: worth knowing; nothing has to be done.
	Info Status = "info"
	// Warning: it may not work tomorrow, or not as well or as safely as it should.
	Warning Status = "warning"
	// Error: something does not work.
	Error Status = "error"
	// Skipped: it could not be looked at.
	Skipped Status = "skipped"
)

// weight orders statuses, the worst last. That something was skipped says less than
// that the rest is fine.
func (s Status) weight() int {
	return slices.Index([]Status{Skipped, OK, Info, Warning, Error}, s)
}

// Finding is one thing that a check found out.
type Finding struct {
	// Code names what is the matter, in lower case with hyphens: stable, and that of the
	// agent's own problems (docs/health.md) where it is the same matter. "" when nothing
	// is.
	Code   string `json:"code"`
	Status Status `json:"status"`
	// What is found, why it matters and what to do, for people. Why and Do are empty
	// where there is nothing to do.
	What string   `json:"what"`
	Why  string   `json:"why"`
	Do   []string `json:"do"`
}

// Result is what a check found: at least one finding.
type Result struct {
	Check    string    `json:"check"` // its ID
	Group    string    `json:"group"`
	Title    string    `json:"title"`
	Status   Status    `json:"status"` // the worst of the findings
	Millis   int64     `json:"millis"` // how long it took
	Findings []Finding `json:"findings"`
}

// Summary counts checks by their status.
type Summary struct {
	OK       int `json:"ok"`
	Info     int `json:"info"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`
}

// Report is what the doctor says. It is the JSON of `liqo-agent doctor -o json`.
type Report struct {
	Version string    `json:"version"` // of this program
	At      time.Time `json:"at"`
	Status  Status    `json:"status"` // the worst of the checks: ok, info, warning, error
	Summary Summary   `json:"summary"`
	Checks  []Result  `json:"checks"` // in the order of Checks
}

// Check is something that the doctor looks at.
type Check struct {
	// ID names the check: lower case with hyphens, stable.
	ID string
	// Group is the heading under which it is shown.
	Group string
	// Title says what it is about, in a few words.
	Title string
	// Looks says what it looks at, for the documentation.
	Looks string
	// Limit is how long it may take.
	Limit time.Duration
	run   func(ctx context.Context, b *Box) []Finding
}

// The groups, in order.
const (
	groupNetwork    = "Network"
	groupCluster    = "Cluster"
	groupKubernetes = "Kubernetes"
	groupBox        = "This box"
	groupAgent      = "Agent"
	groupPeers      = "Peers"
)

const (
	usual    = 5 * time.Second
	networks = 8 * time.Second
	asking   = 20 * time.Second
)

// Checks returns everything that the doctor looks at, from the outside in.
func Checks() []Check {
	return []Check{
		{"links", groupNetwork, "Network interfaces", "Which interfaces are used, why others are excluded, and whether addresses overlap with those of containers.", usual, checkLinks},
		{"mdns-port", groupNetwork, "UDP port 5353", "Which program uses the port of multicast DNS, and whether it is shared.", usual, checkMDNSPort},
		{"multicast", groupNetwork, "Multicast", "Whether queries to the group arrive, are answered, and find the known clusters. Firewall rules, if readable.", networks, checkMulticast},
		{"endpoint", groupNetwork, "Endpoint port", "Whether the port for other clusters is open, and whether trusted peers can connect to it.", asking, checkEndpoint},
		{"pod-network", groupNetwork, "Network of pods", "Whether this machine can connect its pods with those of peers, whether a firewall drops or rewrites their packets, and which peers are not connected.", usual, checkPodNetwork},
		{"guest-names", groupNetwork, "Names for pods of peers", "Whether the agent answers DNS queries of pods of peers.", usual, checkNames},
		{"cluster-id", groupCluster, "Cluster ID", "Whether another cluster shows the same ID.", networks, checkClusterID},
		{"clock", groupCluster, "Clock", "Whether the clock is plausible, synchronised, and agrees with those of the API server and the peers.", asking, checkClock},
		{"api-server", groupKubernetes, "API server", "Which kubeconfig is used, whether the API server accepts its credentials, and how fast it answers.", asking, checkAPIServer},
		{"crds", groupKubernetes, "Custom resources", "Whether the definitions exist, in this version.", asking, checkCRDs},
		{"rbac", groupKubernetes, "Permissions", "Whether the agent has the permissions that it needs, and whether a policy confines it to them.", asking, checkRBAC},
		{"network-policies", groupKubernetes, "Network policies", "Whether something enforces the network policies for the pods of peers.", asking, checkPolicies},
		{"storage", groupKubernetes, "Storage", "Whether a class and a provisioner keep the claims of peers, whether their disk is large enough, and whether the class for data at providers exists.", asking, checkStorage},
		{"foreign-liqo", groupKubernetes, "Other Liqo", "Whether another version of Liqo is installed in the same cluster, and whether the agent can drive it, where it is to.", asking, checkForeignLiqo},
		{"state", groupBox, "State directory", "Whether the directory, the database and the key exist, are intact, and are private.", usual, checkState},
		{"disk", groupBox, "Disk", "How much space is free, and how long a write takes.", networks, checkDisk},
		{"resources", groupBox, "Memory and limits", "The limits and use of memory and files, and whether packets were lost.", usual, checkResources},
		{"agent", groupAgent, "Agent", "Whether the agent runs, its version, and the problems that it reports.", usual, checkAgent},
		{"service", groupAgent, "Service", "Whether systemd starts the agent, and how often it restarted it.", usual, checkService},
		{"config", groupAgent, "Configuration", "Whether the file is valid and in use, and which dangerous settings are on.", usual, checkConfig},
		{"trust", groupAgent, "Keys and certificates", "Whether certificates of the fleet are about to expire.", usual, checkTrust},
		{"peers", groupPeers, "Joined peers", "Whether peers with a peering are reachable, and speak a common protocol version.", usual, checkPeers},
	}
}

// Run looks at everything and returns the report. It takes as long as the slowest
// check may; when ctx ends earlier, what is not finished is skipped.
func Run(ctx context.Context, b *Box) Report {
	return run(ctx, b, Checks())
}

func run(ctx context.Context, b *Box, checks []Check) Report {
	report := Report{Version: b.opts.Version, At: b.now().UTC(), Status: OK, Checks: make([]Result, len(checks))}
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() { report.Checks[i] = c.result(ctx, b) })
	}
	group.Wait()
	once(report.Checks)
	for _, r := range report.Checks {
		switch r.Status {
		case OK:
			report.Summary.OK++
		case Info:
			report.Summary.Info++
		case Warning:
			report.Summary.Warnings++
		case Error:
			report.Summary.Errors++
		case Skipped:
			report.Summary.Skipped++
		}
		if r.Status.weight() > report.Status.weight() {
			report.Status = r.Status
		}
	}
	return report
}

// result runs one check. One that does not keep its limit is left behind: what hangs
// in it, such as a file system, would have us all hang.
func (c Check) result(ctx context.Context, b *Box) Result {
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	began := time.Now()
	done := make(chan []Finding, 1)
	go func() { done <- c.run(ctx, b) }()
	out := Result{Check: c.ID, Group: c.Group, Title: c.Title}
	select {
	case out.Findings = <-done:
	case <-ctx.Done():
		select {
		case out.Findings = <-done: // it keeps its limit, and says what it has
		case <-time.After(graceTime):
			out.Findings = []Finding{skipped("the check did not finish within %s", c.Limit)}
		}
	}
	out.Millis = time.Since(began).Milliseconds()
	out.settle()
	return out
}

// graceTime is how long a check that is over its limit may take to say what it has.
const graceTime = 500 * time.Millisecond

// settle fills in what follows from the findings.
func (r *Result) settle() {
	r.Status = Skipped
	for i, f := range r.Findings {
		if f.Do == nil {
			r.Findings[i].Do = []string{}
		}
		if f.Status.weight() > r.Status.weight() {
			r.Status = f.Status
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(b.Status.weight(), a.Status.weight()) })
}

// once leaves out what the agent reports of itself where a check found the same.
func once(results []Result) {
	found := make(map[string]bool)
	for _, r := range results {
		for _, f := range r.Findings {
			if r.Check != agentCheck && f.Code != "" {
				found[f.Code] = true
				for _, same := range sameMatter[f.Code] {
					found[same] = true
				}
			}
		}
	}
	for i := range results {
		r := &results[i]
		if r.Check != agentCheck {
			continue
		}
		r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Code != "" && found[f.Code] })
		if len(r.Findings) == 0 {
			r.Findings = []Finding{{Status: OK, What: "it runs; its problems are listed above"}}
		}
		r.settle()
	}
}

// agentCheck is the check that repeats what the agent says.
const agentCheck = "agent"

// sameMatter are the codes of the agent's problems that a finding explains.
var sameMatter = map[string][]string{
	"disk-full":               {"state-write", "state-volatile", "disk-low"},
	"disk-low":                {"disk-full"},
	"disk-read-only":          {"state-write", "state-volatile"},
	"api-unreachable":         {"objects-missing", "webhook-missing"},
	"rbac-gaps":               {"api-forbidden"},
	"id-conflict":             {"instance-renamed"},
	"id-clone":                {"instance-renamed", "id-conflict"},
	"no-links":                {"networks-unusable"},
	"storage-no-class":        {"storage-unusable"},
	"storage-class-immediate": {"storage-unusable"},
}

// fine is a finding that there is nothing to do about.
func fine(format string, args ...any) Finding {
	return Finding{Status: OK, What: fmt.Sprintf(format, args...)}
}

// skipped says why something was not looked at.
func skipped(format string, args ...any) Finding {
	return Finding{Status: Skipped, What: fmt.Sprintf(format, args...)}
}

// info is worth knowing.
func info(code, format string, args ...any) Finding {
	return Finding{Code: code, Status: Info, What: fmt.Sprintf(format, args...)}
}
