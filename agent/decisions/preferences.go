package decisions

import (
	"context"
	"fmt"
	"strings"

	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// Set lets edit change the preferences for a peer. A change of AutoConnect or AutoAccept
// counts as a decision; use Block to block. The errors are those of
// state.Store.SetRuling. edit must not call the Store.
func (s *Store) Set(ctx context.Context, id peer.ClusterID, edit func(*state.Preferences), by string) error {
	ref := s.reference(id)
	return s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		want := r.Preferences
		if edit(&want); want == r.Preferences {
			return decision{}, nil
		}
		var d decision
		add := func(more decision) { d.events = append(d.events, more.events...) }
		want.Blocked, want.BlockedHosts = r.Preferences.Blocked, r.Preferences.BlockedHosts
		if want.AutoConnect != r.Preferences.AutoConnect {
			switch want.AutoConnect {
			case state.Yes:
				if err := s.mayConnect(id, r, ref); err != nil {
					return decision{}, err
				}
				add(s.connect(id, r, false, by))
			case state.No:
				add(s.disconnect(id, r, by))
			}
		}
		if want.AutoAccept != r.Preferences.AutoAccept && want.AutoAccept != state.No {
			r.Peering.Rejected, r.Peering.Ended = peer.Fingerprint{}, ""
			want.ByLiqo = want.AutoAccept == state.Yes && s.currentPolicy().ByLiqo
		}
		if changes := differences(r.Preferences, want); changes != "" {
			d.events = append(d.events, s.event(id, peer.EventPreference, "by %s: %s", or(by, "a person"), changes))
		}
		r.Preferences = want
		return d, nil
	})
}

// differences says in which preferences two differ, but for those that have
// events of their own.
func differences(a, b state.Preferences) string {
	var list []string
	compare := func(name, from, to string) {
		switch {
		case from == to:
		case to == "":
			list = append(list, name+" removed")
		default:
			list = append(list, fmt.Sprintf("%s is %s", name, to))
		}
	}
	compare("auto-connect", a.AutoConnect.String(), b.AutoConnect.String())
	compare("auto-accept", a.AutoAccept.String(), b.AutoAccept.String())
	compare("alias", a.Alias, b.Alias)
	compare("note", a.Note, b.Note)
	compare("URL", a.URL, b.URL)
	compare("the CPU to ask for", a.CPU, b.CPU)
	compare("the memory to ask for", a.Memory, b.Memory)
	return strings.Join(list, ", ")
}
