package cli

import (
	"fmt"
	"strings"

	"liqo.io/agent/agent/control"
)

// What lists say about trust and the two directions, in one word each; "" where
// there is nothing to say.

func trustWord(p control.Peer) string {
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

func outgoingWord(p control.Peer) string { return directionWord(p.Outgoing) }

func incomingWord(p control.Peer) string {
	word := directionWord(p.Incoming)
	if r := p.Request; word == "" && r != nil {
		return r.State
	}
	return word
}

func directionWord(d control.Direction) string {
	switch {
	case d.Joined && (d.Reason == "" || d.Reason == joinedWord):
		return joinedWord
	case d.Joined:
		return joinedWord + " (" + d.Reason + ")"
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

// joinedWord is what a joined direction is called, and may give as its reason.
const joinedWord = "Joined"

// peer writes everything known about one peer.
func (p *printer) peer(q control.Peer) {
	conflict := ""
	if k := q.Conflict; k != nil {
		conflict = fmt.Sprintf("somebody at %s shows this ID with another key, %s, since %s", k.Address, k.Fingerprint, p.when(k.Since))
	}
	p.fields("",
		[2]string{"Name", q.Name}, [2]string{"Alias", q.Alias}, [2]string{"ID", q.ID}, [2]string{"Note", q.Preferences.Note},
		[2]string{"Phase", q.Phase}, [2]string{"Reason", q.Reason}, [2]string{"Verified", yesNo(q.Verified)},
		[2]string{"Fingerprint", q.Fingerprint}, [2]string{"Code", q.Code}, [2]string{"Trust", p.trust(q.Trust)}, [2]string{"Trusted key", otherKey(q)},
		[2]string{"Role", roleText(q.Role)}, [2]string{"Outgoing", p.direction(q.Outgoing)}, [2]string{"Incoming", p.direction(q.Incoming)},
		[2]string{"Used of it", providerText(q.Sharing.Provider)}, [2]string{"Used by it", consumerText(q.Sharing.Consumer)},
		[2]string{"Request", p.request(q.Request)}, [2]string{"Remembered", remembered(q.Preferences)},
		[2]string{"Source", sourcesText(q)}, [2]string{"Endpoint", q.URL}, [2]string{"Looked for at", q.Preferences.URL},
		[2]string{"Addresses", strings.Join(q.Addresses, ", ")}, [2]string{"Links", strings.Join(q.Links, ", ")}, [2]string{"Namespace", q.Namespace},
		[2]string{"Protocol", q.Version}, [2]string{"TTL", ttlText(q.TTLSeconds)}, [2]string{"Failed checks", failuresText(q.Failures)},
		[2]string{"ForeignCluster", q.ForeignCluster}, [2]string{"First seen", p.when(q.FirstSeen)}, [2]string{"Last seen", p.when(q.LastSeen)},
		[2]string{"Conflict", conflict},
	)
	p.steps("Outgoing", q.Outgoing)
	p.steps("Incoming", q.Incoming)
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
func (p *printer) trust(t control.Trust) string {
	if t.Mode == control.UnknownTrust {
		return "nobody decided yet"
	}
	text := t.Mode
	if t.Method != "" {
		text += " (" + t.Method + ")"
	}
	if t.By != "" {
		text += " by " + t.By
	}
	if !t.At.IsZero() {
		text += ", " + p.when(t.At)
	}
	if t.Detail != "" {
		text += "; " + t.Detail
	}
	if !strings.Contains(t.Detail, t.Host) {
		text += "; its host is " + t.Host
	}
	switch {
	case !t.Suspended.IsZero():
		text += "; suspended, because its certificate ended on " + stamp(t.Until)
	case !t.Until.IsZero():
		text += "; its certificate ends on " + stamp(t.Until)
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

func roleText(role string) string {
	if role == "Unknown" {
		return "" // there is no peering
	}
	return role
}

func (p *printer) direction(d control.Direction) string {
	word := directionWord(d)
	if word == "" && (d.Message == "" || d.Reason == control.ReasonUnknown) {
		return "" // there is none, or nobody can tell, and nobody wants it
	}
	if word == "" {
		word = "no"
	}
	if !d.Since.IsZero() {
		word += ", since " + p.when(d.Since)
	}
	if d.Message != "" {
		word += ": " + d.Message
	}
	return word
}

func (p *printer) request(r *control.Request) string {
	if r == nil {
		return ""
	}
	text := r.State + ", from " + r.Address
	if r.Address == "" {
		text = r.State
	}
	if !r.Since.IsZero() {
		text += ", " + p.when(r.Since)
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
			blocked += ", and so are its hosts: " + strings.Join(prefs.BlockedHosts, " ")
		}
		parts = append(parts, blocked)
	}
	switch prefs.AutoConnect {
	case control.Yes:
		parts = append(parts, "connect to it when it is there")
	case control.No:
		parts = append(parts, "do not connect to it")
	}
	switch prefs.AutoAccept {
	case control.Yes:
		parts = append(parts, "let it in when it asks")
	case control.No:
		parts = append(parts, "ask before letting it in")
	}
	return strings.Join(parts, ", ")
}

// steps lists how far a peering is that is not established yet.
func (p *printer) steps(name string, d control.Direction) {
	if len(d.Steps) == 0 || d.Joined || !d.Wanted {
		return
	}
	p.printf("\n%s:\n", name)
	for _, s := range d.Steps {
		mark := "done   "
		if !s.Done {
			mark = "waiting"
		}
		p.printf("  %s  %s\n", mark, clean(s.Text))
	}
}
