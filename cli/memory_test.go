package cli

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

// memory is a control.Backend that answers from memory, and does what it is told
// to the peers in it, as far as their decisions go. What follows from a decision
// is up to the test.
type memory struct {
	mu       sync.Mutex
	status   control.Status
	peers    []control.Peer
	events   []peer.Event
	requests []control.Request
	invites  []control.Invite
	domains  []control.Domain
	adverts  []control.Advert
	told     []string // decisions, in order
	fail     error    // of every decision
	// decided is called after a decision, with what it was.
	decided   func(verb string)
	resetPlan control.ResetPlan
	resets    []control.Reset // how a reset goes on, from one question to the next
	publish   func(id string) // tells watchers
}

func (m *memory) Status(context.Context) (control.Status, error) { return m.status, nil }

func (m *memory) Peers(context.Context) ([]control.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.peers), nil
}

func (m *memory) Peer(_ context.Context, id peer.ClusterID) (control.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.find(id); p != nil {
		return *p, nil
	}
	return control.Peer{}, control.ErrNotFound
}

// find must be called with mu held.
func (m *memory) find(id peer.ClusterID) *control.Peer {
	for i := range m.peers {
		if m.peers[i].ID == string(id) {
			return &m.peers[i]
		}
	}
	return nil
}

func (m *memory) Requests(context.Context) ([]control.Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests), nil
}

func (m *memory) History(_ context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	var out []peer.Event
	for _, e := range m.events {
		if (q.ID == "" || e.ID == q.ID) && !e.At.Before(q.Since) {
			out = append(out, e)
		}
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[len(out)-q.Limit:]
	}
	return out, nil
}

func (m *memory) Config(context.Context) (control.Config, error) {
	return control.Config{Path: "/etc/x.toml", TOML: "[discovery]\nautojoin = false\nttl = \"10m\"\n\n[log]\nlevel = \"warn\"\n\n[[peer]]\nid = \"a\"\n\n[[peer]]\nid = \"b\"\n",
		Sources: map[string]string{"log.level": "file /etc/x.toml line 2", "discovery.autojoin": "ClusterConfig liqo-configuration",
			"discovery.ttl": "ClusterConfig liqo-configuration", "peer[0]": "file /etc/x.toml line 4", "peer[1]": "file /etc/x.toml line 6"}}, nil
}

// change changes a peer.
func (m *memory) change(id peer.ClusterID, f func(*control.Peer)) {
	m.mu.Lock()
	if p := m.find(id); p != nil {
		f(p)
	}
	m.mu.Unlock()
	if m.publish != nil {
		m.publish(string(id))
	}
}

// decide takes a decision about a peer, if f has nothing against it.
func (m *memory) decide(id peer.ClusterID, f func(*control.Peer) error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	m.mu.Lock()
	err := m.fail
	p := m.find(id)
	if p == nil {
		p = new(control.Peer)
		for _, r := range m.requests {
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
	after := m.decided
	m.mu.Unlock()
	if err == nil && after != nil {
		verb, _, _ := strings.Cut(what, " ")
		after(verb)
	}
	return err
}

func (m *memory) heard() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	p.Trust = control.Trust{Mode: control.Trusted, Method: string(peer.TrustPerson), By: by, At: now, Fingerprint: p.Fingerprint}
	return nil
}

func (m *memory) Connect(_ context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	id := opts.ID
	if id == "" {
		id = idBarn
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
		return nil
	}, "connect %s url=%s token=%s once=%t", id, opts.URL, opts.Token, opts.Once)
}

func (m *memory) Disconnect(_ context.Context, id peer.ClusterID, incoming bool, _ string) error {
	return m.decide(id, func(p *control.Peer) error {
		if incoming {
			p.Incoming.Wanted = false
		} else {
			p.Outgoing.Wanted = false
		}
		return nil
	}, "disconnect %s incoming=%t", id, incoming)
}

func (m *memory) Accept(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.decide(id, func(p *control.Peer) error {
		p.Preferences.AutoAccept = control.Yes
		return pin(p, fp, by)
	}, "accept %s", id)
}

func (m *memory) Reject(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { return nil }, "reject %s", id)
}

func (m *memory) Block(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Preferences.Blocked = true; return nil }, "block %s", id)
}

func (m *memory) Unblock(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Preferences.Blocked = false; return nil }, "unblock %s", id)
}

func (m *memory) Trust(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.decide(id, func(p *control.Peer) error { return pin(p, fp, by) }, "trust %s %.8s", id, fp)
}

func (m *memory) Distrust(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error { p.Trust = control.Trust{Mode: control.Untrusted}; return nil }, "distrust %s", id)
}

func (m *memory) Set(_ context.Context, id peer.ClusterID, patch control.PreferencesPatch, _ string) error {
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
		return nil
	}, "set %s", id)
}

func (m *memory) SetAlias(_ context.Context, id peer.ClusterID, alias string) error {
	m.change(id, func(p *control.Peer) { p.Alias = alias })
	return nil
}

func (m *memory) Forget(_ context.Context, id peer.ClusterID, _ string) error {
	return m.decide(id, func(p *control.Peer) error {
		p.Alias, p.Trust, p.Preferences = "", control.Trust{}, control.Preferences{}
		return nil
	}, "forget %s", id)
}

func (m *memory) Invite(_ context.Context, opts control.InviteOptions) (control.Invite, error) {
	made := control.Invite{ID: "0a1b2c3d4e5f6071", Token: "liqo1-0123456789abcdef", State: control.InviteOpen, Note: opts.Note, URL: opts.URL,
		CreatedAt: now, CreatedBy: "user alice (command line)", ExpiresAt: now.Add(opts.TTL)}
	return made, m.decide("", func(*control.Peer) error { return nil }, "invite ttl=%s note=%s url=%s", opts.TTL, opts.Note, opts.URL)
}

func (m *memory) Invites(context.Context) ([]control.Invite, error) { return m.invites, nil }

func (m *memory) RevokeInvite(_ context.Context, id, _ string) error {
	return m.decide("", func(*control.Peer) error { return nil }, "revoke %s", id)
}

func (m *memory) Key(context.Context) (control.Key, error) {
	return control.Key{Fingerprint: strings.Repeat("77", 32), PublicKey: "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", Successions: 2,
		CreatedAt: now.Add(-24 * time.Hour)}, nil
}

func (m *memory) RotateKey(context.Context, string) (control.Key, error) {
	return control.Key{Fingerprint: strings.Repeat("88", 32), Successions: 3, CreatedAt: now},
		m.decide("", func(*control.Peer) error { return nil }, "rotate")
}

func (m *memory) CSR(_ context.Context, names []string) (string, error) {
	return "-----BEGIN CERTIFICATE REQUEST-----\n" + strings.Join(names, "\n") + "\n-----END CERTIFICATE REQUEST-----\n", nil
}

// codeOf is the verification code of the cluster in these tests and a peer.
func codeOf(t *testing.T, fingerprint string) string {
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

func peerID(s string) peer.ClusterID { return peer.ClusterID(s) }

func (m *memory) Domains(context.Context) ([]control.Domain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.domains), nil
}

// domain changes the domain of that name, or adds it.
func (m *memory) domain(name string, f func(*control.Domain)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.domains, func(d control.Domain) bool { return d.Name == name })
	if i < 0 {
		i = len(m.domains)
		m.domains = append(m.domains, control.Domain{Name: name})
	}
	f(&m.domains[i])
}

func (m *memory) AddDomain(_ context.Context, opts control.DomainOptions) error {
	autojoin := "default"
	if opts.Autojoin != nil {
		autojoin = fmt.Sprint(*opts.Autojoin)
	}
	if m.fail == nil {
		m.domain(opts.Name, func(d *control.Domain) {
			d.Server, d.Autojoin, d.Source = opts.Server, opts.Autojoin, "command line (user alice)"
		})
	}
	return m.decide("", func(*control.Peer) error { return nil }, "add-domain %s server=%s autojoin=%s %s..%s", opts.Name, opts.Server, autojoin, opts.MinInterval, opts.MaxInterval)
}

func (m *memory) RemoveDomain(_ context.Context, name, _ string) error {
	return m.decide("", func(*control.Peer) error {
		m.domains = slices.DeleteFunc(m.domains, func(d control.Domain) bool { return d.Name == name })
		return nil
	}, "remove-domain %s", name)
}

func (m *memory) AskDomain(_ context.Context, name string) error {
	return m.decide("", func(*control.Peer) error { return nil }, "ask-domain %s", name)
}

func (m *memory) Adverts(context.Context) ([]control.Advert, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.adverts), nil
}

func (m *memory) DecideAdvert(_ context.Context, id peer.ClusterID, accept bool, by string) error {
	return m.decide(id, func(*control.Peer) error {
		for i := range m.adverts {
			if m.adverts[i].ID == string(id) {
				m.adverts[i].Status, m.adverts[i].Reason, m.adverts[i].DecidedBy = control.AdvertRefused, "RefusedByPerson", "liqo-agent-intent"
				if accept {
					m.adverts[i].Status, m.adverts[i].Reason = control.AdvertAccepted, "AcceptedByPerson"
				}
			}
		}
		return nil
	}, "decide-advert %s accept=%t", id, accept)
}
