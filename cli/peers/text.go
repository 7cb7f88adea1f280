package peers

import (
	"fmt"
	"maps"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/adverts"
	"liqo.io/agent/cli/network"
	"liqo.io/agent/cli/render"
)

// What lists say about trust and the two directions, in one word each; "" where
// there is nothing to say.

func TrustWord(p control.Peer) string {
	switch {
	case p.Preferences.Blocked:
		return "blocked"
	case !p.Trust.Suspended.IsZero():
		return "suspended"
	case p.Trust.Mode == control.Trusted:
		return "yes"
	case p.Trust.Mode == control.Untrusted:
		return "no"
	}
	return ""
}

func OutgoingWord(p control.Peer) string { return directionWord(p.Outgoing) }

func IncomingWord(p control.Peer) string {
	word := directionWord(p.Incoming)
	if r := p.Request; word == "" && r != nil {
		return r.State
	}
	return word
}

func directionWord(d control.Direction) string {
	switch {
	case d.Joined && (d.Reason == "" || d.Reason == Joined):
		return Joined
	case d.Joined:
		return Joined + " (" + d.Reason + ")"
	case d.Wanted && d.Reason == "":
		return "wanted"
	case d.Wanted:
		return d.Reason
	case d.Ending && d.Reason == control.ReasonDraining:
		return d.Reason
	case !d.Over():
		return "ending"
	}
	return ""
}

// Joined is what a joined direction is called, and may give as its reason.
const Joined = "Joined"

// Print writes everything known about one peer.
func Print(p *render.Printer, q control.Peer) {
	conflict := ""
	if k := q.Conflict; k != nil {
		conflict = fmt.Sprintf("a cluster at %s uses this ID with another key, %s, since %s", k.Address, k.Fingerprint, p.When(k.Since))
	}
	p.Fields("",
		[2]string{"Name", q.Name}, [2]string{"Alias", q.Alias}, [2]string{"ID", q.ID}, [2]string{"Note", q.Preferences.Note},
		[2]string{"Phase", q.Phase}, [2]string{"Reason", q.Reason}, [2]string{"Verified", render.YesNo(q.Verified)},
		[2]string{"Fingerprint", q.Fingerprint}, [2]string{"Code", q.Code}, [2]string{"Trust", trust(p, q.Trust)}, [2]string{"Trusted key", otherKey(q)},
		[2]string{"Role", RoleText(q.Role)}, [2]string{"Outgoing", direction(p, q.Outgoing)}, [2]string{"Incoming", direction(p, q.Incoming)},
		[2]string{"Engine", q.Engine},
		[2]string{"We use", adverts.ProviderText(q.Sharing.Provider)}, [2]string{"It uses", adverts.ConsumerText(q.Sharing.Consumer)},
		[2]string{"Request", request(p, q.Request)}, [2]string{"Preferences", remembered(q.Preferences)},
		[2]string{"Source", sourcesText(q)}, [2]string{"Endpoint", q.URL}, [2]string{"Preferred URL", q.Preferences.URL},
		[2]string{"Addresses", strings.Join(q.Addresses, ", ")}, [2]string{"Links", strings.Join(q.Links, ", ")}, [2]string{"Namespace", q.Namespace},
		[2]string{"Protocol", q.Version}, [2]string{"TTL", ttlText(q.TTLSeconds)}, [2]string{"Failed checks", failuresText(q.Failures)},
		[2]string{"ForeignCluster", q.ForeignCluster}, [2]string{"First seen", p.When(q.FirstSeen)}, [2]string{"Last seen", p.When(q.LastSeen)},
		[2]string{"Conflict", conflict},
	)
	if n := q.Network; n != nil {
		p.Printf("\nNetwork:\n")
		network.Print(p, "  ", *n)
	}
	steps(p, "Outgoing", q.Outgoing)
	steps(p, "Incoming", q.Incoming)
}

// sourcesText says by which sources a peer is seen, or was seen last.
func sourcesText(q control.Peer) string {
	if len(q.Sources) == 0 {
		return q.Source
	}
	text := strings.Join(q.Sources, ", ")
	if len(q.Domains) > 0 {
		text += " (in " + strings.Join(q.Domains, ", ") + ")"
	}
	return text
}

// trust says whether a key is trusted, how that came, and by whom and when.
func trust(p *render.Printer, t control.Trust) string {
	if t.Mode == control.UnknownTrust {
		return "undecided"
	}
	text := t.Mode
	if t.Method != "" {
		text += " (" + t.Method + ")"
	}
	if t.By != "" {
		text += " by " + t.By
	}
	if !t.At.IsZero() {
		text += ", " + p.When(t.At)
	}
	if t.Detail != "" {
		text += "; " + t.Detail
	}
	if !strings.Contains(t.Detail, t.Host) {
		text += "; host " + t.Host
	}
	switch {
	case !t.Suspended.IsZero():
		text += "; suspended: its certificate expired on " + render.Stamp(t.Until)
	case !t.Until.IsZero():
		text += "; its certificate expires on " + render.Stamp(t.Until)
	}
	return text
}

// otherKey is the trusted key of a peer that was seen with another one.
func otherKey(q control.Peer) string {
	if q.Trust.Fingerprint == q.Fingerprint {
		return ""
	}
	return q.Trust.Fingerprint
}

func RoleText(role string) string {
	if role == "Unknown" {
		return "" // there is no peering
	}
	return role
}

func direction(p *render.Printer, d control.Direction) string {
	word := directionWord(d)
	if word == "" && (d.Message == "" || d.Reason == control.ReasonUnknown) {
		return "" // there is none, or nobody can tell, and nobody wants it
	}
	if word == "" {
		word = "no"
	}
	if !d.Since.IsZero() {
		word += ", since " + p.When(d.Since)
	}
	if d.Message != "" {
		word += ": " + d.Message
	}
	return word
}

func request(p *render.Printer, r *control.Request) string {
	if r == nil {
		return ""
	}
	text := r.State + ", from " + r.Address
	if r.Address == "" {
		text = r.State
	}
	if !r.Since.IsZero() {
		text += ", " + p.When(r.Since)
	}
	if r.Message != "" {
		text += "; " + r.Message
	}
	return text
}

// remembered says which preferences there are.
func remembered(prefs control.Preferences) string {
	var parts []string
	if prefs.Blocked {
		blocked := "blocked"
		if len(prefs.BlockedHosts) > 0 {
			blocked += ", with its hosts: " + strings.Join(prefs.BlockedHosts, " ")
		}
		parts = append(parts, blocked)
	}
	switch prefs.AutoConnect {
	case control.Yes:
		parts = append(parts, "connect automatically")
	case control.No:
		parts = append(parts, "do not connect")
	}
	switch prefs.AutoAccept {
	case control.Yes:
		parts = append(parts, "accept automatically")
	case control.No:
		parts = append(parts, "ask before accepting")
	}
	amounts := map[string]string{"cpu": prefs.CPU, "memory": prefs.Memory}
	maps.DeleteFunc(amounts, func(_, amount string) bool { return amount == "" })
	if len(amounts) > 0 {
		parts = append(parts, "ask for "+adverts.AmountsText(amounts))
	}
	return strings.Join(parts, ", ")
}

// steps lists how far a peering is that is not established yet.
func steps(p *render.Printer, name string, d control.Direction) {
	if len(d.Steps) == 0 || d.Joined || !d.Wanted {
		return
	}
	p.Printf("\n%s:\n", name)
	for _, s := range d.Steps {
		mark := "done   "
		if !s.Done {
			mark = "waiting"
		}
		p.Printf("  %s  %s\n", mark, render.Clean(s.Text))
	}
}
