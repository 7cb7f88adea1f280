package domains

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer/text"
)

// The outcomes of a look that say something about the domain; all others mean
// that it could not be asked.
const (
	outcomeFound  = "Found"
	outcomeNoData = "NoData"
	outcomeNoName = "NoName"
)

func printDomains(p *render.Printer, known []control.Domain, wide bool) {
	header := []string{"DOMAIN", "SOURCE", "AUTOJOIN", "RESULT", "CLUSTERS", "NEXT"}
	if wide {
		header = []string{"DOMAIN", "SOURCE", "IGNORED", "AUTOJOIN", "SERVER", "INTERVAL", "RESULT", "CLUSTERS", "ANSWERED BY", "DNSSEC", "BROWSED", "LAST", "NEXT", "MESSAGE"}
	}
	rows := make([]render.Row, 0, len(known))
	for _, d := range known {
		r := render.Row{Cells: []string{d.Name, d.Source, autojoinWord(d.Autojoin), domainResult(d), clustersWord(d), next(p, d)}}
		if wide {
			r.Cells = []string{d.Name, d.Source, strings.Join(d.Ignored, ", "), autojoinWord(d.Autojoin), d.Server, intervalText(d), domainResult(d), clustersWord(d),
				d.AnsweredBy, dnssecWord(d), strings.Join(d.Browsed, ","), p.Ago(d.LastQuery), next(p, d), d.Message}
		}
		if d.Outcome != "" && d.Outcome != outcomeFound || len(leftOut(d)) > 0 {
			r.Color = render.Yellow
		}
		rows = append(rows, r)
	}
	p.Table(header, rows)
}

func autojoinWord(choice *bool) string {
	if choice == nil {
		return "default"
	}
	return render.YesNo(*choice)
}

// domainResult is what the last look gave, in a few words; "" before the first.
func domainResult(d control.Domain) string {
	if n := len(leftOut(d)); n > 0 {
		return fmt.Sprintf("%s, %d skipped", d.Outcome, n)
	}
	return d.Outcome
}

// leftOut are the entries that come to nothing, apart from this cluster itself.
func leftOut(d control.Domain) []control.DomainEntry {
	var out []control.DomainEntry
	for _, e := range d.Entries {
		if e.Reason != "" && e.Reason != reasonAsking && e.Reason != reasonSelf {
			out = append(out, e)
		}
	}
	return out
}

// reasonSelf is that of an entry which is this cluster.
const reasonSelf = "ThisCluster"

// clustersOf counts the clusters that answer.
func clustersOf(d control.Domain) int {
	ids := make(map[string]bool)
	for _, e := range d.Entries {
		if e.ClusterID != "" && e.Reason == "" {
			ids[e.ClusterID] = true
		}
	}
	return len(ids)
}

func clustersWord(d control.Domain) string {
	if d.Outcome == "" {
		return ""
	}
	return fmt.Sprint(clustersOf(d))
}

// next says when the domain is looked at again.
func next(p *render.Printer, d control.Domain) string {
	switch {
	case d.NextQuery.IsZero():
		return ""
	case !d.NextQuery.After(p.Now):
		return "now"
	}
	return "in " + render.Span(d.NextQuery.Sub(p.Now))
}

func intervalText(d control.Domain) string {
	if d.MinIntervalSeconds == 0 && d.MaxIntervalSeconds == 0 {
		return ""
	}
	return interval(d.MinIntervalSeconds) + " to " + interval(d.MaxIntervalSeconds)
}

func interval(seconds int64) string { return text.Duration(time.Duration(seconds) * time.Second) }

// dnssecWord says whether the DNS server validated the answers.
func dnssecWord(d control.Domain) string {
	if d.Outcome == "" {
		return ""
	}
	return render.YesNo(d.Authenticated)
}

// printDomain writes everything about one search domain.
func printDomain(p *render.Printer, d control.Domain) {
	autojoin := autojoinWord(d.Autojoin)
	if d.Autojoin == nil {
		autojoin = "default (discovery.autojoin)"
	}
	server := d.Server
	if server == "" {
		server = "the system's"
	}
	result := d.Outcome
	if d.Message != "" && result != "" {
		result += ": " + d.Message
	}
	if result == "" {
		result = "not queried yet"
	}
	dnssec := ""
	if d.Authenticated {
		dnssec = "the DNS server validated all answers"
	}
	p.Fields("", [2]string{"Domain", d.Name}, [2]string{"Source", d.Source}, [2]string{"Overridden", strings.Join(d.Ignored, ", ")},
		[2]string{"Autojoin", autojoin}, [2]string{"DNS server", server}, [2]string{"Interval", intervalText(d)}, [2]string{"Result", result},
		[2]string{"Answered by", d.AnsweredBy}, [2]string{"DNSSEC", dnssec}, [2]string{"Also queries", strings.Join(d.Browsed, ", ")},
		[2]string{"Last query", p.When(d.LastQuery)}, [2]string{"Next query", next(p, d)})
	if advice := outcomeAdvice(d); advice != "" {
		p.Printf("try: %s\n", render.Clean(advice))
	}
	entries(p, d)
}

// entries lists the clusters of a domain, and what was left out.
func entries(p *render.Printer, d control.Domain) {
	var rows []render.Row
	for _, e := range d.Entries {
		if e.Reason == "" || e.Reason == reasonAsking || e.Reason == reasonSelf {
			text, cluster := e.Message, e.Cluster
			switch {
			case e.Reason == reasonSelf:
				text = "this cluster"
			case pendingEntry(e):
				text = "verification pending"
			}
			if cluster == "" {
				cluster = e.ClusterID
			}
			rows = append(rows, render.Row{Cells: []string{e.Name, cluster, strings.TrimPrefix(e.URL, "https://"), text}})
		}
	}
	if len(rows) > 0 {
		p.Printf("\n")
		p.Table([]string{"NAME", "CLUSTER", "ADDRESS", "REMARK"}, rows)
	}
	skipped := leftOut(d)
	if len(skipped) == 0 {
		return
	}
	p.Printf("\nSkipped:\n")
	var told []string
	for _, e := range skipped {
		text := e.Name + ": " + e.Reason
		if e.Message != "" {
			text += ", " + e.Message
		}
		p.Printf("  - %s\n", p.Paint(render.Red, render.Clean(text)))
		if advice := reasonAdvice[e.Reason]; advice != "" && !slices.Contains(told, e.Reason) {
			p.Printf("    try: %s\n", advice)
			told = append(told, e.Reason) // once is enough, of a hundred with the same trouble
		}
	}
}

// outcomeAdvice says what to do when a look found nothing.
func outcomeAdvice(d control.Domain) string {
	// What was not added on the command line cannot be changed there.
	other := "use another server: " + command.Name + " domains add " + d.Name + " --server ADDRESS"
	switch {
	case strings.HasPrefix(d.Source, "file "):
		other = "use another server: set its server in " + d.Source
	case strings.HasPrefix(d.Source, "SearchDomain "):
		other = "use another server: set the server of " + d.Source
	}
	switch d.Outcome {
	case "", outcomeFound:
		return ""
	case outcomeNoData:
		return "register a cluster (docs/beyond.md#register-a-cluster), then run: " + command.Name + " domains refresh " + d.Name
	case outcomeNoName:
		return "check the spelling; or " + other
	case "Refused":
		return "allow this machine on the DNS server; or " + other
	case "Timeout", "Unreachable":
		return "check the network path to the DNS server; or " + other
	}
	return "check the log of the DNS server; or " + other
}

// reasonAdvice says what to do about what was left out, by reason.
var reasonAdvice = map[string]string{
	"NoSRV":        "add an SRV record with this name and the host and port of the cluster's endpoint, or remove the PTR record",
	"NotAvailable": "its SRV record marks the service as not available (target \".\"): change the record when the cluster is available",
	"NoAddress":    "add an A or AAAA record for the target of its SRV record",
	"BadTXT":       "correct or remove its TXT record; it is optional",
	"LookupFailed": "wait: it is queried again; if it keeps failing, ask the operator of the DNS server",
	"TooMany":      "split the domain: it lists more clusters than the agent reads from one domain",
	"Unreachable":  "check that the cluster runs and that its port is reachable from here; it is tried again",
	"NotACluster":  "point the SRV record at the port of a liqo-agent endpoint",
	"OtherCluster": "correct the id in its TXT record, or the host and port in its SRV record",
	"OtherKey":     "find out why its key differs; if it is the right cluster, correct the fp in its TXT record",
}

// fewDomains is how many search domains status names.
const fewDomains = 4

// Summary says what was found in the search domains, for status.
func Summary(domains []control.DomainSummary) string {
	var parts []string
	outcomes, clusters := make(map[string]int), 0
	for _, d := range domains {
		word := d.Outcome
		if word == "" {
			word = "not queried yet"
		}
		outcomes[word]++
		clusters += d.Clusters
		part := d.Domain + ": " + word
		switch {
		case d.Outcome == outcomeFound:
			part = d.Domain + ": " + render.Count(d.Clusters, "cluster", "clusters")
		case d.Message != "":
			part += ", " + d.Message
		}
		parts = append(parts, part)
	}
	if len(domains) <= fewDomains {
		return strings.Join(parts, "; ")
	}
	parts = nil
	for _, word := range slices.Sorted(maps.Keys(outcomes)) {
		parts = append(parts, fmt.Sprintf("%d %s", outcomes[word], word))
	}
	return fmt.Sprintf("%s, %s (%s domains list)", strings.Join(parts, ", "), render.Count(clusters, "cluster", "clusters"), command.Name)
}
