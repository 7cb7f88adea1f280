package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// maxCandidates bounds how many peers an ambiguity error lists.
const maxCandidates = 8

// SortPeers orders peers as every list shows them: by label, then by ID.
func SortPeers(peers []Peer) {
	slices.SortFunc(peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Label(), b.Label()), cmp.Compare(a.ID, b.ID))
	})
}

// Resolve finds the peer that ref names: its full ID, its alias, its cluster
// name, or a prefix of its ID that no other ID has, in this order. Names are
// whatever a neighbour says of itself, so a verified peer is preferred to
// unverified ones of the same name. The error is an *Error that wraps
// ErrNotFound or ErrAmbiguous; the latter lists the candidates.
func Resolve(peers []Peer, ref string) (Peer, error) {
	return resolve(peers, ref, func(p Peer) bool { return p.Verified })
}

// ResolveProven is Resolve for decisions about keys and requests. It prefers peers whose
// key is proven, by a check or by their own request: of two proven peers with one name,
// neither is chosen, so nobody can pass for another by its name.
func ResolveProven(peers []Peer, ref string) (Peer, error) {
	return resolve(peers, ref, func(p Peer) bool { return p.Verified || p.Request != nil })
}

func resolve(peers []Peer, ref string, prefer func(Peer) bool) (Peer, error) {
	if ref == "" {
		return Peer{}, &Error{Kind: ErrInvalid, Message: "no peer was named",
			Advice: "name it by alias, cluster name or the beginning of its ID; liqo-agent peers list shows them"}
	}
	for _, fits := range []func(Peer) bool{
		func(p Peer) bool { return p.ID == ref },
		func(p Peer) bool { return p.Alias == ref },
		func(p Peer) bool { return p.Name == ref },
		func(p Peer) bool { return strings.HasPrefix(p.ID, ref) },
	} {
		var all, preferred []Peer
		for _, p := range peers {
			if !fits(p) {
				continue
			}
			all = append(all, p)
			if prefer(p) {
				preferred = append(preferred, p)
			}
		}
		switch {
		case len(all) == 1:
			return all[0], nil
		case len(preferred) == 1:
			return preferred[0], nil
		case len(all) > 1:
			return Peer{}, ambiguous(ref, all)
		}
	}
	return Peer{}, &Error{Kind: ErrNotFound, Message: fmt.Sprintf("no peer is called %q", ref),
		Advice: "liqo-agent peers list --all"}
}

// uuidLength is the length of a cluster ID that was not chosen by a person.
const uuidLength = 36

// ResolveID is Resolve for queries about peers that may be forgotten, such as their
// history: it accepts any full ID.
func ResolveID(peers []Peer, ref string) (peer.ClusterID, error) {
	p, err := Resolve(peers, ref)
	if id, invalid := peer.ParseClusterID(ref); errors.Is(err, ErrNotFound) && invalid == nil && len(id) == uuidLength {
		return id, nil
	}
	return peer.ClusterID(p.ID), err
}

func ambiguous(ref string, candidates []Peer) error {
	SortPeers(candidates)
	shown := make([]string, 0, len(candidates))
	for _, p := range candidates {
		shown = append(shown, fmt.Sprintf("%s (%s)", p.Label(), p.ID))
	}
	return &Error{Kind: ErrAmbiguous, Message: fmt.Sprintf("%q matches %d peers: %s", ref, len(candidates), text.List(shown, maxCandidates, ", ")),
		Advice: "use more of the ID, or name one: liqo-agent peers alias ID NAME"}
}
