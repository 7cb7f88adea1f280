package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
)

// The outcomes of a look that say something about the domain; all others mean
// that it could not be asked.
const (
	outcomeFound  = "Found"
	outcomeNoData = "NoData"
	outcomeNoName = "NoName"
)

func (p *printer) domains(known []control.Domain, wide bool) {
	header := []string{"DOMAIN", "SOURCE", "AUTOJOIN", "RESULT", "CLUSTERS", "NEXT"}
	if wide {
		header = []string{"DOMAIN", "SOURCE", "IGNORED", "AUTOJOIN", "SERVER", "INTERVAL", "RESULT", "CLUSTERS", "ANSWERED BY", "DNSSEC", "BROWSED", "LAST", "NEXT", "MESSAGE"}
	}
	rows := make([]row, 0, len(known))
	for _, d := range known {
		r := row{cells: []string{d.Name, d.Source, autojoinWord(d.Autojoin), domainResult(d), clustersWord(d), p.next(d)}}
		if wide {
			r.cells = []string{d.Name, d.Source, strings.Join(d.Ignored, ", "), autojoinWord(d.Autojoin), d.Server, intervalText(d), domainResult(d), clustersWord(d),
				d.AnsweredBy, dnssecWord(d), strings.Join(d.Browsed, ","), p.ago(d.LastQuery), p.next(d), d.Message}
		}
		if d.Outcome != "" && d.Outcome != outcomeFound || len(leftOut(d)) > 0 {
			r.color = colorYellow
		}
		rows = append(rows, r)
	}
	p.table(header, rows)
}

func autojoinWord(choice *bool) string {
	if choice == nil {
		return "default"
	}
	return yesNo(*choice)
}

// domainResult is what the last look gave, in a few words; "" before the first.
func domainResult(d control.Domain) string {
	if n := len(leftOut(d)); n > 0 {
		return fmt.Sprintf("%s, %d left out", d.Outcome, n)
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
func (p *printer) next(d control.Domain) string {
	switch {
	case d.NextQuery.IsZero():
		return ""
	case !d.NextQuery.After(p.now):
		return "now"
	}
	return "in " + span(d.NextQuery.Sub(p.now))
}

func intervalText(d control.Domain) string {
	if d.MinIntervalSeconds == 0 && d.MaxIntervalSeconds == 0 {
		return ""
	}
	return interval(d.MinIntervalSeconds) + " to " + interval(d.MaxIntervalSeconds)
}

// interval writes seconds as people say it, in full: 90s are 1m30s.
func interval(seconds int64) string {
	s := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// dnssecWord says whether the DNS server validated the answers.
func dnssecWord(d control.Domain) string {
	if d.Outcome == "" {
		return ""
	}
	return yesNo(d.Authenticated)
}

// domain writes everything about one search domain.
func (p *printer) domain(d control.Domain) {
	autojoin := autojoinWord(d.Autojoin)
	if d.Autojoin == nil {
		autojoin = "as discovery.autojoin says"
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
		result = "not looked at yet"
	}
	dnssec := ""
	if d.Authenticated {
		dnssec = "the DNS server validated all answers"
	}
	p.fields("", [2]string{"Domain", d.Name}, [2]string{"From", d.Source}, [2]string{"Without effect", strings.Join(d.Ignored, ", ")},
		[2]string{"Autojoin", autojoin}, [2]string{"DNS server", server}, [2]string{"Interval", intervalText(d)}, [2]string{"Result", result},
		[2]string{"Answered by", d.AnsweredBy}, [2]string{"DNSSEC", dnssec}, [2]string{"Also looks in", strings.Join(d.Browsed, ", ")},
		[2]string{"Last look", p.when(d.LastQuery)}, [2]string{"Next look", p.next(d)})
	if advice := outcomeAdvice(d); advice != "" {
		p.printf("try: %s\n", clean(advice))
	}
	p.entries(d)
}

// entries lists the clusters of a domain, and what was left out.
func (p *printer) entries(d control.Domain) {
	var rows []row
	for _, e := range d.Entries {
		if e.Reason == "" || e.Reason == reasonAsking || e.Reason == reasonSelf {
			text, cluster := e.Message, e.Cluster
			switch {
			case e.Reason == reasonSelf:
				text = "this cluster itself"
			case pendingEntry(e):
				text = "is being asked who it is"
			}
			if cluster == "" {
				cluster = e.ClusterID
			}
			rows = append(rows, row{cells: []string{e.Name, cluster, strings.TrimPrefix(e.URL, "https://"), text}})
		}
	}
	if len(rows) > 0 {
		p.printf("\n")
		p.table([]string{"NAME", "CLUSTER", "ADDRESS", "REMARK"}, rows)
	}
	skipped := leftOut(d)
	if len(skipped) == 0 {
		return
	}
	p.printf("\nLeft out:\n")
	var told []string
	for _, e := range skipped {
		text := e.Name + ": " + e.Reason
		if e.Message != "" {
			text += ", " + e.Message
		}
		p.printf("  - %s\n", p.red(text))
		if advice := reasonAdvice[e.Reason]; advice != "" && !slices.Contains(told, e.Reason) {
			p.printf("    try: %s\n", advice)
			told = append(told, e.Reason) // once is enough, of a hundred with the same trouble
		}
	}
}

// outcomeAdvice says what to do when a look found nothing.
func outcomeAdvice(d control.Domain) string {
	// What was not added on the command line cannot be changed there.
	other := "name another one: " + Name + " domains add " + d.Name + " --server ADDRESS"
	switch {
	case strings.HasPrefix(d.Source, "file "):
		other = "name another one: set its server in " + d.Source
	case strings.HasPrefix(d.Source, "SearchDomain "):
		other = "name another one: set the server of " + d.Source
	}
	switch d.Outcome {
	case "", outcomeFound:
		return ""
	case outcomeNoData:
		return "register a cluster there, as docs/beyond.md#register-a-cluster shows, then: " + Name + " domains refresh " + d.Name
	case outcomeNoName:
		return "check the spelling; if only another DNS server knows the domain, " + other
	case "Refused":
		return "let that DNS server answer this machine, or " + other
	case "Timeout", "Unreachable":
		return "see whether the DNS server can be reached from here, or " + other
	}
	return "see what the DNS server logs about it, or " + other
}

// reasonAdvice says what to do about what was left out, by reason.
var reasonAdvice = map[string]string{
	"NoSRV":        "add an SRV record with this name, that points at the port and host of the cluster's endpoint, or remove the PTR record that names it",
	"NotAvailable": "its SRV record says that the service is decidedly not available (target \".\"): change that when it is",
	"NoAddress":    "add an A or AAAA record for the target of its SRV record",
	"BadTXT":       "correct its TXT record, or remove it: a cluster is found without one",
	"LookupFailed": "nothing, for a while: it is looked up again by itself; if it stays so, ask who runs the DNS server",
	"TooMany":      "split the domain: more clusters than that are not taken from one",
	"Unreachable":  "see whether the cluster runs and whether its port can be reached from here; it is asked again by itself",
	"NotACluster":  "point the SRV record at the port of a liqo-agent endpoint",
	"OtherCluster": "correct the id in its TXT record, or the host and port in its SRV record",
	"OtherKey":     "find out why its key is another one; if the cluster is the right one, correct the fp in its TXT record",
}
