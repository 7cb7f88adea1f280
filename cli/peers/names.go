package peers

import (
	"cmp"
	"context"
	"strings"

	"liqo.io/agent/cli/command"
)

// peerNames offers the peers that the running agent knows, by what they are
// called; those whose name another one shares, by ID.
func peerNames(ctx context.Context, t command.Typed) []command.Candidate {
	if t.Arguments > 0 {
		return nil
	}
	return names(ctx, t, false)
}

// MoreNames is peerNames for commands that take any number of peers.
func MoreNames(ctx context.Context, t command.Typed) []command.Candidate { return names(ctx, t, false) }

// askerNames is peerNames with those who only asked to be let in.
func askerNames(ctx context.Context, t command.Typed) []command.Candidate { return names(ctx, t, true) }

func names(ctx context.Context, t command.Typed, askers bool) []command.Candidate {
	client := t.Client()
	if client == nil {
		return nil
	}
	defer client.Close()
	peers, err := client.Peers(ctx, true)
	if err != nil {
		return nil // there is nothing to offer, and no place for an error
	}
	type offer struct{ label, id, text string }
	var offers []offer
	known := make(map[string]bool, len(peers))
	for _, p := range peers {
		known[p.ID] = true
		offers = append(offers, offer{p.Label(), p.ID, strings.TrimSpace(p.Phase + " " + addressOf(p))})
	}
	if askers {
		requests, err := client.Requests(ctx)
		if err != nil {
			return nil // there is nothing to offer, and no place for an error
		}
		for _, r := range requests {
			if !known[r.ID] {
				offers = append(offers, offer{cmp.Or(r.Name, r.ID), r.ID, "asks to use this cluster"})
			}
		}
	}
	called := make(map[string]int, len(offers))
	for _, o := range offers {
		called[o.label]++
	}
	out := make([]command.Candidate, 0, len(offers))
	for _, o := range offers {
		name := o.label
		if called[name] > 1 {
			name = o.id
		}
		out = append(out, command.Candidate{Value: name, Text: o.text})
	}
	return out
}
