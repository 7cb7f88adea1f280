package socket

import (
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// maxCandidates bounds how many invites an ambiguity error lists.
const maxCandidates = 8

// union returns the peers, and those of others that are not among them.
func union(peers, others []control.Peer) []control.Peer {
	known := make(map[string]bool, len(peers)+len(others))
	return slices.DeleteFunc(slices.Concat(peers, others), func(p control.Peer) bool {
		was := known[p.ID]
		known[p.ID] = true
		return was
	})
}

// asker returns the peer that a request is from.
func asker(r control.Request) control.Peer {
	p := control.Peer{ID: r.ID, Name: r.Name, Phase: string(peer.PhaseUnverified), Reason: "it only asked for access",
		Source: string(peer.IncomingPeering), Fingerprint: r.Fingerprint, Code: r.Code, Request: &r}
	if r.Address != "" {
		p.Addresses = []string{r.Address}
	}
	return p.Complete()
}

// resolveInvite returns the ID of the open invite whose ID is ref or begins with it.
func resolveInvite(made []control.Invite, ref string) (string, error) {
	var fits []string
	for _, i := range made {
		if i.ID == ref {
			return ref, nil
		}
		if ref != "" && i.State == control.InviteOpen && strings.HasPrefix(i.ID, ref) {
			fits = append(fits, i.ID)
		}
	}
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		return "", &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("there is no open invite %q", text.Excerpt(ref)), Advice: "liqo-agent invite list"}
	}
	return "", &control.Error{Kind: control.ErrAmbiguous, Message: fmt.Sprintf("%q matches %d invites: %s", text.Excerpt(ref), len(fits), text.List(fits, maxCandidates, ", ")),
		Advice: "use more of the ID"}
}
