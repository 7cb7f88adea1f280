package decisions

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// Database keeps decisions. A method returns after the change is on the disk, or
// with an error and without effect.
type Database interface {
	Rulings(ctx context.Context) (map[peer.ClusterID]state.Ruling, error)
	SetRuling(ctx context.Context, id peer.ClusterID, r state.Ruling, events ...peer.Event) error
	UseInvite(ctx context.Context, invite string, at time.Time, id peer.ClusterID, r state.Ruling, events ...peer.Event) error
	AddInvite(ctx context.Context, i state.Invite, events ...peer.Event) error
	Invite(ctx context.Context, id string) (i state.Invite, found bool, err error)
	Invites(ctx context.Context) ([]state.Invite, error)
	RevokeInvite(ctx context.Context, prefix string, at time.Time, note func(state.Invite) []peer.Event) error
	Apply(ctx context.Context, c state.Change) error
}

// Config is what a Store needs. All fields but ClockTrusted, Logger and Now are
// required.
type Config struct {
	Database Database
	// Self and SelfKey are this cluster. They must be quick.
	Self    func() peer.ClusterID
	SelfKey func() peer.Fingerprint
	// Peer returns what the registry knows about a peer. It must be quick.
	Peer   func(id peer.ClusterID) (peer.Peer, bool)
	Policy Policy
	// ClockTrusted reports whether the clock can be believed for a decision about a
	// peer. It must be quick, and may call Partner. nil: it always can.
	ClockTrusted func(about peer.ClusterID) bool
	// Changed is called when the Policy or the waiting request of a peer changed. It
	// must not block, and may be called by several goroutines at once. It is called
	// without locks held.
	Changed func(id peer.ClusterID)
	// Opened is called when a decision permits a peer more than before, so that the
	// peer can be notified. It is called as Changed is. It may be nil.
	Opened func(Request)
	Logger *slog.Logger     // default: discard
	Now    func() time.Time // default: time.Now
}

// Policy has the settings about peers.
type Policy struct {
	Accept          string // trust.accept: ask, trusted, all or none
	AllowEmptyToken bool
	// ByLiqo: Liqo may peer clusters (peering.engine), and who accepts one now knows that.
	ByLiqo            bool
	Autojoin          bool
	AutojoinUntrusted bool
	// AutojoinSet: Autojoin is set explicitly, so status explains which clusters it
	// does not join.
	AutojoinSet bool
	// Domains says for search domains with a setting of their own whether clusters
	// found there are joined. Strange are the links that are in networks where
	// nobody is.
	Domains map[string]bool
	Strange map[string]bool
	// Search are all search domains; nil while they are not all known.
	Search []string
	Static []config.StaticPeer
	Fleet  []*x509.Certificate // the fleet's authorities
	// FleetUnknown: there are some, and they cannot be read. Nobody is trusted by them anew then, and whom
	// they made trusted stays so.
	FleetUnknown bool
}

// Store decides about peers. Make one with Open.
type Store struct {
	cfg Config

	// deciding is held from before a decision is thought about until it is
	// published. It comes before mu.
	deciding sync.Mutex
	// inviting is held while the invites are read again. It comes between the two.
	inviting sync.Mutex

	mu      sync.RWMutex
	policy  policy
	records map[peer.ClusterID]record
	queue   queue
	guesses guesses
	noise   noise
	invites []state.Invite // as they were stored last; replaced, never changed
}

var _ peering.Decisions = (*Store)(nil)

// record is everything about one peer. It is replaced, never changed.
type record struct {
	state.Ruling // on the disk

	generation uint64
	token      string           // the secret of an invite of its, not used yet
	asked      time.Time        // when it last asked, and may
	refused    peer.Fingerprint // the last key that was refused in its name
	at         time.Time        // when that was written down
	former     *formerKeys      // nil for none
}

// askedFor is how long after its last ask a peer's PeeringRequest is expected.
const askedFor = 10 * time.Minute

func (r record) pinned() bool     { return r.Pin.ID != "" }
func (r record) suspended() bool  { return !r.Pin.Suspended.IsZero() }
func (r record) distrusted() bool { return r.Distrust.By != "" }
func (r record) blocked() bool    { return r.Preferences.Blocked == state.Yes }
func (r record) expects(now time.Time) bool {
	return !r.asked.IsZero() && now.Sub(r.asked) < askedFor
}

// standsAs reports whether the two lead to the same Policy.
func (r record) standsAs(o record, now time.Time) bool {
	return r.Ruling == o.Ruling && r.generation == o.generation && r.token == o.token && r.expects(now) == o.expects(now)
}

// policy is a Policy with its static peers by ID.
type policy struct {
	Policy
	static map[peer.ClusterID]static
}

type static struct {
	fingerprint     peer.Fingerprint // zero when the configuration names none
	connect, accept string
	url             string
}

func compile(p Policy) (policy, error) {
	c := policy{Policy: p, static: make(map[peer.ClusterID]static, len(p.Static))}
	for _, s := range p.Static {
		id, err := peer.ParseClusterID(s.ID)
		if err != nil {
			return policy{}, fmt.Errorf("[[peer]]: %w", err)
		}
		one := static{connect: s.Connect, accept: s.Accept, url: s.URL}
		if s.Fingerprint != "" {
			if one.fingerprint, err = peer.ParseFingerprint(s.Fingerprint); err != nil {
				return policy{}, fmt.Errorf("[[peer]] %s: %w", id, err)
			}
		}
		c.static[id] = one
	}
	return c, nil
}

// Open reads the stored decisions, and applies the policy to them.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Opened == nil {
		cfg.Opened = func(Request) {}
	}
	if cfg.ClockTrusted == nil {
		cfg.ClockTrusted = func(peer.ClusterID) bool { return true }
	}
	rulings, err := cfg.Database.Rulings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the decisions about peers: %w", err)
	}
	s := &Store{cfg: cfg, records: make(map[peer.ClusterID]record, len(rulings)), queue: newQueue(), guesses: newGuesses(), noise: newNoise()}
	for id, r := range rulings {
		s.records[id] = record{Ruling: r}
	}
	s.readInvites(ctx)
	compiled, err := compile(cfg.Policy)
	if err != nil {
		return nil, err
	}
	if err := s.putPolicy(ctx, compiled); err != nil && ctx.Err() == nil { // the database's, such as a full disk
		cfg.Logger.Error("cannot store the trust settings of the configuration", "error", err)
	}
	return s, nil
}

// SetPolicy puts a new configuration into effect: keys that it names are
// trusted, those that it no longer vouches for are not. On an error, which is
// the database's, all of that is in effect, and the next start does it again.
func (s *Store) SetPolicy(ctx context.Context, p Policy) error {
	compiled, err := compile(p)
	if err != nil {
		return err
	}
	return s.putPolicy(ctx, compiled)
}

func (s *Store) putPolicy(ctx context.Context, compiled policy) error {
	s.mu.Lock()
	old := s.policy
	s.policy = compiled
	affected := maps.Clone(s.records)
	s.mu.Unlock()
	for id := range old.static {
		affected[id] = s.record(id)
	}
	for id := range compiled.static {
		affected[id] = s.record(id)
	}
	var failure error
	for _, id := range slices.Sorted(maps.Keys(affected)) {
		if err := s.decide(ctx, id, s.byPolicy, true); err != nil && failure == nil {
			failure = err
		}
		seen, _ := s.cfg.Peer(id)
		r := s.record(id)
		if differently(id, r, seen, old, compiled) {
			s.cfg.Changed(id)
		}
		if old.Accept != "" && opens(acceptOf(id, r, old, ""), acceptOf(id, r, compiled, "")) {
			s.cfg.Opened(s.request(id, r))
		}
	}
	return failure
}

// differently reports whether two policies treat a peer differently.
func differently(id peer.ClusterID, r record, seen peer.Peer, a, b policy) bool {
	wishA, whyA := connectOf(id, r, a, seen)
	wishB, whyB := connectOf(id, r, b, seen)
	return wishA != wishB || whyA != whyB || unjoined(id, r, a, seen) != unjoined(id, r, b, seen) || acceptOf(id, r, a, "") != acceptOf(id, r, b, "")
}

// decision is the outcome of a change to a record.
type decision struct {
	events []peer.Event
	invite string // the invite that it uses up, "" for none
}

// rule lets plan change the record of one peer, stores the outcome, and puts it into
// effect. plan sees the outcome of all earlier decisions, and must neither block nor call
// methods of the Store. If plan or the disk fails, nothing changes.
func (s *Store) rule(ctx context.Context, id peer.ClusterID, plan func(peer.ClusterID, *record) (decision, error)) error {
	return s.decide(ctx, id, plan, false)
}

// opening is rule for decisions that may permit a peer more than before, of which it
// calls Opened.
func (s *Store) opening(ctx context.Context, id peer.ClusterID, plan func(peer.ClusterID, *record) (decision, error)) error {
	p := s.currentPolicy()
	before := acceptOf(id, s.record(id), p, "")
	if err := s.rule(ctx, id, plan); err != nil {
		return err
	}
	if r := s.record(id); opens(before, acceptOf(id, r, p, "")) {
		s.cfg.Opened(s.request(id, r))
	}
	return nil
}

// opens reports whether more is allowed by one decision than by the one before.
func opens(before, after plan.AcceptDecision) bool {
	rank := map[api.RequestPhase]int{api.RequestPending: 1, api.RequestAccepted: 2}
	return rank[after.Phase] > rank[before.Phase]
}

// follow is rule for facts: they take effect even if they cannot be stored, and are stored
// with the next decision about the peer.
func (s *Store) follow(ctx context.Context, id peer.ClusterID, plan func(peer.ClusterID, *record) (decision, error)) {
	if err := s.decide(ctx, id, plan, true); err != nil {
		s.cfg.Logger.Warn("an event of a peer cannot be stored and is kept in memory", "peer", id, "error", err)
	}
}

// decide is rule; with regardless, what cannot be stored takes effect nevertheless.
func (s *Store) decide(ctx context.Context, id peer.ClusterID, plan func(peer.ClusterID, *record) (decision, error), regardless bool) error {
	changed, err := s.ruled(ctx, id, plan, regardless)
	if changed {
		s.cfg.Changed(id)
	}
	return err
}

func (s *Store) ruled(ctx context.Context, id peer.ClusterID, plan func(peer.ClusterID, *record) (decision, error), regardless bool) (changed bool, err error) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	have := s.record(id)
	want := have
	d, err := plan(id, &want)
	if err != nil {
		return false, err
	}
	switch {
	case d.invite != "":
		err = s.cfg.Database.UseInvite(ctx, d.invite, s.cfg.Now(), id, want.Ruling, d.events...)
		s.readInvites(ctx)
	case want.Ruling != have.Ruling || len(d.events) > 0:
		err = s.cfg.Database.SetRuling(ctx, id, want.Ruling, d.events...)
	}
	if err != nil && !regardless {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want == (record{}) {
		delete(s.records, id)
	} else {
		s.records[id] = want
	}
	return !want.standsAs(have, s.cfg.Now()), err
}

func (s *Store) record(id peer.ClusterID) record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records[id]
}

// now is the time as it is stored.
func (s *Store) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Second) }

func (s *Store) event(id peer.ClusterID, kind peer.EventKind, format string, args ...any) peer.Event {
	return peer.Event{At: s.cfg.Now(), ID: id, Kind: kind, Detail: text.Sentence(fmt.Sprintf(format, args...))}
}

func (s *Store) currentPolicy() policy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.policy
}
