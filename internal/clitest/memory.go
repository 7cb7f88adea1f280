package clitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// Has is what a Memory answers from.
type Has struct {
	Status   control.Status
	Peers    []control.Peer
	Events   []peer.Event
	Requests []control.Request
	Invites  []control.Invite
	Domains  []control.Domain
	Adverts  []control.Advert
	Network  control.Network
	Storage  control.Storage
}

// Memory is a socket.Backend that answers from memory, and does what it is told
// to the peers in it, as far as their decisions go. What follows from a decision
// is up to the test.
type Memory struct {
	Mu  sync.Mutex // of what follows
	Has Has
	// Fail is the error of every decision, nil for none.
	Fail error
	// Decided is called after a decision, with what it was.
	Decided   func(verb string)
	ResetPlan control.ResetPlan
	Resets    []control.Reset // how a reset goes on, from one question to the next
	Publish   func(id string) // tells watchers
	told      []string        // decisions, in order
}

// Status is as in socket.Backend.
func (m *Memory) Status(context.Context) (control.Status, error) { return m.Has.Status, nil }

// Peers is as in socket.Backend.
func (m *Memory) Peers(context.Context) ([]control.Peer, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return slices.Clone(m.Has.Peers), nil
}

// Peer is as in socket.Backend.
func (m *Memory) Peer(_ context.Context, id peer.ClusterID) (control.Peer, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if p := m.find(id); p != nil {
		return *p, nil
	}
	return control.Peer{}, control.ErrNotFound
}

// find must be called with mu held.
func (m *Memory) find(id peer.ClusterID) *control.Peer {
	for i := range m.Has.Peers {
		if m.Has.Peers[i].ID == string(id) {
			return &m.Has.Peers[i]
		}
	}
	return nil
}

// Requests is as in socket.Backend.
func (m *Memory) Requests(context.Context) ([]control.Request, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return slices.Clone(m.Has.Requests), nil
}

// History is as in socket.Backend.
func (m *Memory) History(_ context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	var out []peer.Event
	for _, e := range m.Has.Events {
		if (q.ID == "" || e.ID == q.ID) && !e.At.Before(q.Since) {
			out = append(out, e)
		}
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[len(out)-q.Limit:]
	}
	return out, nil
}

// Config is as in socket.Backend.
func (m *Memory) Config(context.Context) (control.Config, error) {
	return control.Config{Path: "/etc/x.toml", TOML: "[discovery]\nautojoin = false\nttl = \"10m\"\n\n[log]\nlevel = \"warn\"\n\n[[peer]]\nid = \"a\"\n\n[[peer]]\nid = \"b\"\n",
		Sources: map[string]string{"log.level": "file /etc/x.toml line 2", "discovery.autojoin": "ClusterConfig liqo-configuration",
			"discovery.ttl": "ClusterConfig liqo-configuration", "peer[0]": "file /etc/x.toml line 4", "peer[1]": "file /etc/x.toml line 6"}}, nil
}

// Change changes a peer.
func (m *Memory) Change(id peer.ClusterID, f func(*control.Peer)) {
	m.Mu.Lock()
	if p := m.find(id); p != nil {
		f(p)
	}
	m.Mu.Unlock()
	if m.Publish != nil {
		m.Publish(string(id))
	}
}

// decide takes a decision about a peer, if f has nothing against it.
func (m *Memory) decide(id peer.ClusterID, f func(*control.Peer) error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	m.Mu.Lock()
	err := m.Fail
	p := m.find(id)
	if p == nil {
		p = new(control.Peer)
		for _, r := range m.Has.Requests {
			if r.ID == string(id) {
				*p = control.Peer{ID: r.ID, Name: r.Name, Fingerprint: r.Fingerprint, Code: r.Code}
			}
		}
	}
	if err == nil {
		err = f(p)
	}
	if err == nil {
		m.told = append(m.told, strings.TrimSpace(what))
	}
	after := m.Decided
	m.Mu.Unlock()
	if err == nil && after != nil {
		verb, _, _ := strings.Cut(what, " ")
		after(verb)
	}
	return err
}

// Heard returns the decisions since it was called last.
func (m *Memory) Heard() []string {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	out := m.told
	m.told = nil
	return out
}

// pin trusts the key that a peer shows, when it was named.
func pin(p *control.Peer, fp peer.Fingerprint, by string) error {
	shown := control.Shown{ID: p.ID, Name: p.Name, Fingerprint: p.Fingerprint, Code: p.Code, Pinned: p.Trust.Fingerprint}
	if len(p.Addresses) > 0 {
		shown.Address = p.Addresses[0]
	}
	switch {
	case p.Trust.Mode == control.Trusted && p.Trust.Fingerprint == p.Fingerprint:
		return nil
	case fp.IsZero():
		return control.NotTrusted(shown)
	case fp.String() != p.Fingerprint:
		return &control.Error{Kind: control.ErrRefused, Message: p.Label() + " shows another key than the one that was named"}
	}
	p.Trust = control.Trust{Mode: control.Trusted, Method: string(peer.TrustPerson), By: by, At: Now, Fingerprint: p.Fingerprint}
	return nil
}

// Connect is as in socket.Backend.
func (m *Memory) Connect(_ context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	id := opts.ID
	if id == "" {
		id = Barn
	}
	return id, m.decide(id, func(p *control.Peer) error {
		if opts.Token == "" {
			if err := pin(p, opts.Fingerprint, opts.By); err != nil {
				return err
			}
		}
		if p.Preferences.Blocked {
			return &control.Error{Kind: control.ErrRefused, Message: p.Label() + " is blocked", Advice: "liqo-agent peers unblock " + p.ID}
		}
		p.Outgoing.Wanted = true
		setAsks(&p.Preferences, opts.Asks)
		return nil
	}, "connect %s url=%s token=%s once=%t", id, opts.URL, opts.Token, opts.Once)
}

// Disconnect is as in socket.Backend.
func (m *Memory) Disconnect(_ context.Context, id peer.ClusterID, incoming bool, _ string) error {
	return m.decide(id, func(p *control.Peer) error {
		if incoming {
			p.Incoming.Wanted = false
		} else {
			p.Outgoing.Wanted = false
		}
		return nil
	}, "disconnect %s incoming=%t", id, incoming)
}

// Accept is as in socket.Backend.
func (m *Memory) Accept(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.decide(id, func(p *control.Peer) error {
		p.Preferences.AutoAccept = control.Yes
		return pin(p, fp, by)
	}, "accept %s", id)
}

// Reject is as in socket.Backend.
func (m *Memory) Reject(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { return nil }, "reject %s", id)
}

// Block is as in socket.Backend.
func (m *Memory) Block(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Preferences.Blocked = true; return nil }, "block %s", id)
}

// Unblock is as in socket.Backend.
func (m *Memory) Unblock(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Preferences.Blocked = false; return nil }, "unblock %s", id)
}

// Trust is as in socket.Backend.
func (m *Memory) Trust(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.decide(id, func(p *control.Peer) error { return pin(p, fp, by) }, "trust %s %.8s", id, fp)
}

// Distrust is as in socket.Backend.
func (m *Memory) Distrust(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Trust = control.Trust{Mode: control.Untrusted}; return nil }, "distrust %s", id)
}

// Set is as in socket.Backend.
func (m *Memory) Set(_ context.Context, id peer.ClusterID, patch control.PreferencesPatch, _ string) error {
	return m.decide(id, func(p *control.Peer) error {
		prefs := &p.Preferences
		for from, to := range map[*control.Choice]*control.Choice{patch.AutoConnect: &prefs.AutoConnect, patch.AutoAccept: &prefs.AutoAccept} {
			if from != nil {
				*to = *from
			}
		}
		for from, to := range map[*string]*string{patch.Note: &prefs.Note, patch.URL: &prefs.URL} {
			if from != nil {
				*to = *from
			}
		}
		setAsks(prefs, patch.Asks)
		return nil
	}, "set %s", id)
}

func setAsks(p *control.Preferences, asks control.Asks) {
	for from, to := range map[*string]*string{asks.CPU: &p.CPU, asks.Memory: &p.Memory} {
		if from != nil {
			*to = *from
		}
	}
}

// SetAlias is as in socket.Backend.
func (m *Memory) SetAlias(_ context.Context, id peer.ClusterID, alias string) error {
	m.Change(id, func(p *control.Peer) { p.Alias = alias })
	return nil
}

// Forget is as in socket.Backend.
func (m *Memory) Forget(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error {
		p.Alias, p.Trust, p.Preferences = "", control.Trust{}, control.Preferences{}
		return nil
	}, "forget %s", id)
}

// Invite is as in socket.Backend.
func (m *Memory) Invite(_ context.Context, opts control.InviteOptions) (control.Invite, error) {
	made := control.Invite{ID: "0a1b2c3d4e5f6071", Token: "liqo1-0123456789abcdef", State: control.InviteOpen, Note: opts.Note, URL: opts.URL,
		CreatedAt: Now, CreatedBy: "user alice (command line)", ExpiresAt: Now.Add(opts.TTL)}
	return made, m.decide("", func(*control.Peer) error { return nil }, "invite ttl=%s note=%s url=%s", opts.TTL, opts.Note, opts.URL)
}

// Invites is as in socket.Backend.
func (m *Memory) Invites(context.Context) ([]control.Invite, error) { return m.Has.Invites, nil }

// RevokeInvite is as in socket.Backend.
func (m *Memory) RevokeInvite(_ context.Context, id, _ string) error {
	return m.decide("", func(*control.Peer) error { return nil }, "revoke %s", id)
}

// Key is as in socket.Backend.
func (m *Memory) Key(context.Context) (control.Key, error) {
	return control.Key{Fingerprint: strings.Repeat("77", 32), PublicKey: "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", Successions: 2,
		CreatedAt: Now.Add(-24 * time.Hour)}, nil
}

// RotateKey is as in socket.Backend.
func (m *Memory) RotateKey(context.Context, string) (control.Key, error) {
	return control.Key{Fingerprint: strings.Repeat("88", 32), Successions: 3, CreatedAt: Now},
		m.decide("", func(*control.Peer) error { return nil }, "rotate")
}

// CSR is as in socket.Backend.
func (m *Memory) CSR(_ context.Context, names []string) (string, error) {
	return "-----BEGIN CERTIFICATE REQUEST-----\n" + strings.Join(names, "\n") + "\n-----END CERTIFICATE REQUEST-----\n", nil
}

// CodeOf is the verification code of the cluster in these tests and a peer.
func CodeOf(t *testing.T, fingerprint string) string {
	t.Helper()
	other, err := peer.ParseFingerprint(fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := peer.ParseFingerprint(strings.Repeat("77", 32))
	if err != nil {
		t.Fatal(err)
	}
	return trust.Code(ours, other)
}

// PeerID converts an ID.
func PeerID(s string) peer.ClusterID { return peer.ClusterID(s) }

// Domains is as in socket.Backend.
func (m *Memory) Domains(context.Context) ([]control.Domain, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return slices.Clone(m.Has.Domains), nil
}

// Domain changes the domain of that name, or adds it.
func (m *Memory) Domain(name string, f func(*control.Domain)) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	i := slices.IndexFunc(m.Has.Domains, func(d control.Domain) bool { return d.Name == name })
	if i < 0 {
		i = len(m.Has.Domains)
		m.Has.Domains = append(m.Has.Domains, control.Domain{Name: name})
	}
	f(&m.Has.Domains[i])
}

// AddDomain is as in socket.Backend.
func (m *Memory) AddDomain(_ context.Context, opts control.DomainOptions) error {
	autojoin := "default"
	if opts.Autojoin != nil {
		autojoin = fmt.Sprint(*opts.Autojoin)
	}
	if m.Fail == nil {
		m.Domain(opts.Name, func(d *control.Domain) {
			d.Server, d.Autojoin, d.Source = opts.Server, opts.Autojoin, "command line (user alice)"
		})
	}
	return m.decide("", func(*control.Peer) error { return nil }, "add-domain %s server=%s autojoin=%s %s..%s", opts.Name, opts.Server, autojoin, opts.MinInterval, opts.MaxInterval)
}

// RemoveDomain is as in socket.Backend.
func (m *Memory) RemoveDomain(_ context.Context, name, _ string) error {
	return m.decide("", func(*control.Peer) error {
		m.Has.Domains = slices.DeleteFunc(m.Has.Domains, func(d control.Domain) bool { return d.Name == name })
		return nil
	}, "remove-domain %s", name)
}

// AskDomain is as in socket.Backend.
func (m *Memory) AskDomain(_ context.Context, name string) error {
	return m.decide("", func(*control.Peer) error { return nil }, "ask-domain %s", name)
}

// Storage is as in socket.Backend.
func (m *Memory) Storage(context.Context) (control.Storage, error) { return m.Has.Storage, nil }

// ReclaimStorage is as in socket.Backend.
func (m *Memory) ReclaimStorage(_ context.Context, id peer.ClusterID) (control.Reclaimed, error) {
	for _, g := range m.Has.Storage.Guests {
		if g.ID == string(id) && g.State == control.StorageInUse {
			return control.Reclaimed{}, &control.Error{Kind: control.ErrRefused, Message: "it uses its claims", Advice: "end the peering first"}
		}
		if g.ID == string(id) {
			return control.Reclaimed{Claims: g.Claims, Bytes: g.Bytes}, nil
		}
	}
	return control.Reclaimed{}, &control.Error{Kind: control.ErrNotFound, Message: "no claims"}
}

// Network is as in socket.Backend.
func (m *Memory) Network(context.Context) (control.Network, error) { return m.Has.Network, nil }

// Adverts is as in socket.Backend.
func (m *Memory) Adverts(context.Context) ([]control.Advert, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return slices.Clone(m.Has.Adverts), nil
}

// DecideAdvert is as in socket.Backend.
func (m *Memory) DecideAdvert(_ context.Context, id peer.ClusterID, accept bool, by string) error {
	return m.decide(id, func(*control.Peer) error {
		for i := range m.Has.Adverts {
			if m.Has.Adverts[i].ID == string(id) {
				m.Has.Adverts[i].Status, m.Has.Adverts[i].Reason, m.Has.Adverts[i].DecidedBy = control.AdvertRefused, "RefusedByPerson", "liqo-agent-intent"
				if accept {
					m.Has.Adverts[i].Status, m.Has.Adverts[i].Reason = control.AdvertAccepted, "AcceptedByPerson"
				}
			}
		}
		return nil
	}, "decide-advert %s accept=%t", id, accept)
}

// PlanReset, BeginReset and ResetState make Memory a socket.Resetter.
func (m *Memory) PlanReset(context.Context, control.ResetOptions) (control.ResetPlan, error) {
	return m.ResetPlan, nil
}

// BeginReset is as in socket.Backend.
func (m *Memory) BeginReset(_ context.Context, opts control.ResetOptions, _ string) (control.Reset, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.told = append(m.told, "reset "+describeReset(opts))
	if len(m.Resets) == 0 {
		return control.Reset{Phase: control.ResetParting, Options: opts}, nil
	}
	return m.Resets[0], nil
}

// ResetState returns one state after the other, and the last one again and again.
func (m *Memory) ResetState(context.Context) (control.Reset, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if len(m.Resets) > 1 {
		m.Resets = m.Resets[1:]
	}
	if len(m.Resets) == 0 {
		return control.Reset{Phase: control.ResetNone}, nil
	}
	return m.Resets[0], nil
}

func describeReset(opts control.ResetOptions) string {
	out := "plain"
	if opts.Identity {
		out = "identity"
	}
	if opts.All {
		out += " all"
	}
	if opts.CRDs {
		out += " crds"
	}
	if opts.Stop {
		out += " stop"
	}
	return out
}

// ProbeNetwork answers for peers that are Connected.
func (m *Memory) ProbeNetwork(_ context.Context, id peer.ClusterID) (control.NetworkProbe, error) {
	for _, p := range m.Has.Network.Peers {
		if p.ID == string(id) {
			return control.NetworkProbe{RTTMicroseconds: p.RTTMicroseconds, Message: p.Message}, nil
		}
	}
	return control.NetworkProbe{Message: "the network of this cluster is not to be connected with that of the peer"}, nil
}

// Reach implements socket.Diagnoser: nobody is there to be asked.
func (m *Memory) Reach(context.Context) ([]control.Reach, error) { return []control.Reach{}, nil }
