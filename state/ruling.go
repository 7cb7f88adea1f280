package state

import (
	"context"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Ruling is everything that was decided about one peer, and what is remembered
// of the peerings with it. The zero value is a peer nobody decided anything
// about. Rulings can be compared with ==, once stored.
type Ruling struct {
	Pin         Pin      // the key that is trusted; zero for none
	Distrust    Distrust // never together with a Pin
	Preferences Preferences
	Peering     Peering
}

// Pin is a trusted key and what the decision stands on.
type Pin struct {
	peer.Pin
	// Basis is the key that the decision named, before any rotation; of a pin by
	// the fleet's authority, that authority's key.
	Basis peer.Fingerprint
}

// Distrust is a person's word that a cluster is not to be trusted.
type Distrust struct {
	Fingerprint peer.Fingerprint // the key that was shown then; zero for none
	By          string           // who said so; "" when nobody did
	At          time.Time
}

// trustRow is a Pin, or when trusted is false a Distrust.
type trustRow struct {
	trusted bool
	Pin
}

var trustTable = describe(table[trustRow]{
	aspects: aspects{name: "trust", decided: true, ofPeer: true},
	columns: func(r *trustRow) []column {
		return []column{{"cluster_id", (*clusterID)(&r.ID), key}, {"trusted", &r.trusted, value}, {"fingerprint", (*hash)(&r.Fingerprint), value},
			{"basis", (*hash)(&r.Basis), value}, {"method", &r.Method, value}, {"decided_by", clipped(&r.By), value}, {"decided_at", at(&r.At), value},
			{"detail", clipped(&r.Detail), value}, {"host", &r.Host, value}, {"domain", &r.Domain, value},
			{"not_before", at(&r.NotBefore), value}, {"not_after", at(&r.NotAfter), value}, {"suspended_at", at(&r.Suspended), value}}
	},
})

func (r Ruling) trustRow(id peer.ClusterID) *trustRow {
	switch {
	case r.Pin.ID != "":
		return &trustRow{true, r.Pin}
	case r.Distrust != (Distrust{}):
		return &trustRow{false, Pin{Pin: peer.Pin{ID: id, Fingerprint: r.Distrust.Fingerprint, By: r.Distrust.By, At: r.Distrust.At}}}
	}
	return nil
}

// Preferences are a person's decisions about one peer. The zero value is a
// peer nobody decided anything about.
type Preferences struct {
	AutoConnect Decision // connect to it whenever it is seen
	AutoAccept  Decision // accept its requests without asking
	Blocked     Decision // refuse it in both directions
	Alias       string   // a name for it on this box; no two peers share one
	Note        string   // free text, one line
	URL         string   // where a person said that it is, https://host:port
	// BlockedHosts are host names that the block holds for, whoever is there; see
	// JoinHosts.
	BlockedHosts string
	// CPU and Memory are how much to ask it for, as Kubernetes quantities; "" for as much
	// as there is.
	CPU, Memory string
	// ByLiqo: AutoAccept holds for requests to be peered by Liqo, too.
	ByLiqo bool
}

// maxNoteLength bounds a note, in bytes.
const maxNoteLength = 500

type preferenceRow struct {
	id peer.ClusterID
	Preferences
	changedAt time.Time
}

var preferenceTable = describe(table[preferenceRow]{
	aspects: aspects{name: "preferences", decided: true, ofPeer: true},
	columns: func(r *preferenceRow) []column {
		return []column{{"cluster_id", (*clusterID)(&r.id), key}, {"auto_connect", (*yesNo)(&r.AutoConnect), value},
			{"auto_accept", (*yesNo)(&r.AutoAccept), value}, {"blocked", (*yesNo)(&r.Blocked), value}, {"alias", orNull(&r.Alias), value},
			{"note", words{&r.Note, "note", maxNoteLength, nil}, value}, {"url", orNull(&r.URL), value},
			{"blocked_hosts", orNull(&r.BlockedHosts), value}, {"cpu", orNull(&r.CPU), value}, {"memory", orNull(&r.Memory), value},
			{"by_liqo", &r.ByLiqo, value}, {"changed_at", at(&r.changedAt), along}}
	},
	check: func(r *preferenceRow) error {
		if r.URL != "" {
			if _, err := peer.ParseURL(r.URL); err != nil {
				return fmt.Errorf("URL %q must look like https://host:port: %w", text.Excerpt(r.URL), err)
			}
		}
		if r.Alias != "" {
			if _, err := peer.ParseClusterName(r.Alias); err != nil {
				return fmt.Errorf("alias: %w", err)
			}
		}
		return nil
	},
})

func (s *Store) preferenceRow(id peer.ClusterID, r Ruling) *preferenceRow {
	if r.Preferences == (Preferences{}) {
		return nil
	}
	return &preferenceRow{id, r.Preferences, s.now()}
}

// Peering is what is remembered of the peerings with one peer.
type Peering struct {
	Joined      bool   // we consumed its resources
	Once        bool   // we are to consume them until that ends, and not beyond
	HungUp      bool   // a person deleted its ForeignCluster, and it has not been away since
	EndedByPeer string // why the peer ended our consuming its resources, for people
	NodeName    string // of the node here that stands for it; "" while it never had one

	Served   bool             // it consumed ours
	Request  string           // the phase of its last request; "" for none
	Ended    string           // why we ended its last request, for people
	Rejected peer.Fingerprint // the key whose request a person rejected

	// JoinStamp and TrustStamp name the last edits with kubectl that were taken
	// in.
	JoinStamp, TrustStamp string

	// Forgotten: it was forgotten, and objects may still say what was wanted of it
	// before. Of all that was known only the stamps are left then.
	Forgotten bool
}

type peeringRow struct {
	id peer.ClusterID
	Peering
}

var peeringTable = describe(table[peeringRow]{
	aspects: aspects{name: "peerings", decided: true, ofPeer: true},
	columns: func(r *peeringRow) []column {
		return []column{{"cluster_id", (*clusterID)(&r.id), key}, {"joined", &r.Joined, value}, {"once", &r.Once, value},
			{"hung_up", &r.HungUp, value}, {"ended_by_peer", clipped(&r.EndedByPeer), value}, {"served", &r.Served, value},
			{"request", &r.Request, value}, {"ended", clipped(&r.Ended), value}, {"rejected", (*hash)(&r.Rejected), value},
			{"connect_stamp", &r.JoinStamp, value}, {"trust_stamp", &r.TrustStamp, value}, {"node", &r.NodeName, value},
			{"forgotten", &r.Forgotten, value}}
	},
})

func (p Peering) row(id peer.ClusterID) *peeringRow {
	if p == (Peering{}) {
		return nil
	}
	return &peeringRow{id, p}
}

// Rulings returns what was decided about every peer that anything was decided
// about.
func (s *Store) Rulings(ctx context.Context) (all map[peer.ClusterID]Ruling, err error) {
	err = s.read(ctx, func(ctx context.Context) (err error) {
		all, err = s.rulings(ctx, "")
		return err
	})
	return all, err
}

// rulings returns what was decided about the peer with the given ID, or about
// all.
func (s *Store) rulings(ctx context.Context, id peer.ClusterID) (map[peer.ClusterID]Ruling, error) {
	which, args := ofPeer(id)
	preferences, err := preferenceTable.read(ctx, s.conn, which, args...)
	if err != nil {
		return nil, err
	}
	trust, err := trustTable.read(ctx, s.conn, which, args...)
	if err != nil {
		return nil, err
	}
	peerings, err := peeringTable.read(ctx, s.conn, which, args...)
	all := make(map[peer.ClusterID]Ruling)
	for _, row := range preferences {
		all[row.id] = Ruling{Preferences: row.Preferences}
	}
	for _, row := range trust {
		r := all[row.ID]
		if row.trusted {
			r.Pin = row.Pin
		} else {
			r.Distrust = Distrust{row.Fingerprint, row.By, row.At}
		}
		all[row.ID] = r
	}
	for _, row := range peerings {
		r := all[row.id]
		r.Peering = row.Peering
		all[row.id] = r
	}
	return all, err
}

// SetRuling makes r everything that was decided about a peer, and adds events
// to the history, in one transaction; in none when nothing changes and there
// are no events. It is on the disk when the call returns. An error says what
// cannot be decided, or wraps ErrAliasTaken.
func (s *Store) SetRuling(ctx context.Context, id peer.ClusterID, r Ruling, events ...peer.Event) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		var b batch
		b.add(s.rulingOps(ctx, id, r))
		b.add(s.eventOps(ctx, events))
		return b.ops, b.err
	})
}

func (s *Store) rulingOps(ctx context.Context, id peer.ClusterID, r Ruling) ([]op, error) {
	if r.Pin.ID != "" && r.Pin.ID != id || (r.Pin.ID == "") != r.Pin.Fingerprint.IsZero() {
		return nil, fmt.Errorf("the pin of %s belongs to %q and names the key %q", id, r.Pin.ID, r.Pin.Fingerprint)
	}
	if r.Pin.ID != "" && r.Distrust.By != "" {
		return nil, fmt.Errorf("the key of %s is both trusted and distrusted", id)
	}
	stored, err := s.rulings(ctx, id)
	if err != nil {
		return nil, err
	}
	have := stored[id]
	var b batch
	b.add(preferenceTable.change(s.preferenceRow(id, have), s.preferenceRow(id, r)))
	b.add(trustTable.change(have.trustRow(id), r.trustRow(id)))
	b.add(peeringTable.change(have.Peering.row(id), r.Peering.row(id)))
	if r.Preferences.Alias != have.Preferences.Alias && b.err == nil {
		other, err := preferenceTable.one(ctx, s.conn, "WHERE alias = ? AND cluster_id <> ?", r.Preferences.Alias, string(id))
		if err == nil && other != nil {
			err = &fault{kind: ErrAliasTaken, text: fmt.Sprintf(
				"alias %q already belongs to peer %s: choose another, or take it away from that peer first", r.Preferences.Alias, other.id)}
		}
		b.add(nil, err)
	}
	return b.ops, b.err
}

// Decision is what a person said to a question, if anything: Undecided follows
// the configuration, No stays no whatever the configuration says.
type Decision uint8

// The decisions.
const (
	Undecided Decision = iota
	No
	Yes
)

// Decide turns a person's answer into a Decision.
func Decide(yes bool) Decision {
	if yes {
		return Yes
	}
	return No
}

// Or returns the decision, or byDefault when there is none.
func (d Decision) Or(byDefault bool) bool {
	if d == Undecided {
		return byDefault
	}
	return d == Yes
}

// String returns "undecided", "no" or "yes".
func (d Decision) String() string {
	return [...]string{"undecided", "no", "yes"}[min(d, Yes)]
}

// hostSeparator is in no host name.
const hostSeparator = "/"

// JoinHosts returns host names as Preferences keep them.
func JoinHosts(hosts []string) string { return strings.Join(hosts, hostSeparator) }

// Hosts returns the host names that the block holds for.
func (p Preferences) Hosts() []string {
	if p.BlockedHosts == "" {
		return nil
	}
	return strings.Split(p.BlockedHosts, hostSeparator)
}
