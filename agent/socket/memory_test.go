package socket

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// memory is a Backend that answers from memory and writes down what it is told.
type memory struct {
	mu       sync.Mutex
	status   control.Status
	peers    []control.Peer
	requests []control.Request
	made     []control.Invite
	domains  []control.Domain
	adverts  []control.Advert
	network  control.Network
	events   []peer.Event
	asked    control.HistoryQuery
	told     []string
	connects control.ConnectOptions
	fail     error
}

func (m *memory) Status(context.Context) (control.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status, m.fail
}

func (m *memory) Peers(context.Context) ([]control.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.peers), m.fail
}

func (m *memory) Peer(_ context.Context, id peer.ClusterID) (control.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.ID == string(id) {
			return p, m.fail
		}
	}
	return control.Peer{}, fmt.Errorf("peer %s: %w", id, control.ErrNotFound)
}

func (m *memory) Requests(context.Context) ([]control.Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests), nil
}

func (m *memory) History(_ context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = q
	return m.events, m.fail
}

func (m *memory) Config(context.Context) (control.Config, error) {
	return control.Config{Path: "/etc/x.toml", TOML: "[log]\nlevel = \"info\"\n", Sources: map[string]string{"log.level": "default"}}, m.fail
}

// change applies what a test wants to be different.
func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// tell writes down a call.
func (m *memory) tell(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, fmt.Sprintf(format, args...))
	return m.fail
}

// heard returns the calls since the last time.
func (m *memory) heard() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.told
	m.told = nil
	return out
}

func (m *memory) SetAlias(_ context.Context, id peer.ClusterID, alias string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.peers {
		if m.peers[i].ID == string(id) {
			m.peers[i].Alias = alias
		}
	}
	return m.fail
}

func (m *memory) Connect(_ context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	m.change(func() { m.connects = opts })
	id := opts.ID
	if id == "" {
		id = idSilo
	}
	return id, m.tell("connect %s", id)
}

func (m *memory) Disconnect(_ context.Context, id peer.ClusterID, incoming bool, by string) error {
	return m.tell("disconnect %s %t %s", id, incoming, by)
}

func (m *memory) Accept(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.tell("accept %s %s %s", id, fp, by)
}

func (m *memory) Reject(_ context.Context, id peer.ClusterID, by string) error {
	return m.tell("reject %s %s", id, by)
}

func (m *memory) Block(_ context.Context, id peer.ClusterID, by string) error {
	return m.tell("block %s %s", id, by)
}

func (m *memory) Unblock(_ context.Context, id peer.ClusterID, by string) error {
	return m.tell("unblock %s %s", id, by)
}

func (m *memory) Trust(_ context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	return m.tell("trust %s %s %s", id, fp, by)
}

func (m *memory) Distrust(_ context.Context, id peer.ClusterID, by string) error {
	return m.tell("distrust %s %s", id, by)
}

func (m *memory) Set(_ context.Context, id peer.ClusterID, patch control.PreferencesPatch, by string) error {
	text := func(s *string) string {
		if s == nil {
			return "nil"
		}
		return fmt.Sprintf("%q", *s)
	}
	asks := ""
	if patch.Asks != (control.Asks{}) {
		asks = "cpu=" + text(patch.CPU) + " memory=" + text(patch.Memory) + " "
	}
	return m.tell("set %s connect=%s accept=%s note=%s url=%s %s%s", id, text((*string)(patch.AutoConnect)), text((*string)(patch.AutoAccept)),
		text(patch.Note), text(patch.URL), asks, by)
}

func (m *memory) Forget(_ context.Context, id peer.ClusterID, by string) error {
	m.mu.Lock()
	m.peers = slices.DeleteFunc(m.peers, func(p control.Peer) bool { return p.ID == string(id) })
	m.mu.Unlock()
	return m.tell("forget %s %s", id, by)
}

func (m *memory) Invite(_ context.Context, opts control.InviteOptions) (control.Invite, error) {
	return control.Invite{ID: "00ff", Token: "liqo1-secret", State: control.InviteOpen, Note: opts.Note, URL: opts.URL}, m.tell("invite %+v", opts)
}

func (m *memory) Invites(context.Context) ([]control.Invite, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made, m.fail
}

func (m *memory) RevokeInvite(_ context.Context, id, by string) error {
	return m.tell("revoke %s %s", id, by)
}

func (m *memory) Key(context.Context) (control.Key, error) {
	return control.Key{Fingerprint: "f0", PublicKey: "PEM", Successions: 1}, m.tell("key")
}

func (m *memory) RotateKey(_ context.Context, by string) (control.Key, error) {
	return control.Key{Fingerprint: "f1", PublicKey: "PEM", Successions: 2}, m.tell("rotate %s", by)
}

func (m *memory) CSR(_ context.Context, names []string) (string, error) {
	return "CSR", m.tell("csr %v", names)
}

func (m *memory) Domains(context.Context) ([]control.Domain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.domains), m.fail
}

func (m *memory) AddDomain(_ context.Context, opts control.DomainOptions) error {
	autojoin := "nil"
	if opts.Autojoin != nil {
		autojoin = fmt.Sprint(*opts.Autojoin)
	}
	m.change(func() {
		m.domains = slices.DeleteFunc(m.domains, func(d control.Domain) bool { return d.Name == opts.Name })
		m.domains = append(m.domains, control.Domain{Name: opts.Name, Autojoin: opts.Autojoin, Server: opts.Server, Source: opts.By})
	})
	return m.tell("add %s autojoin=%s server=%s %s %s %s", opts.Name, autojoin, opts.Server, opts.MinInterval, opts.MaxInterval, opts.By)
}

func (m *memory) RemoveDomain(_ context.Context, name, by string) error {
	m.change(func() {
		m.domains = slices.DeleteFunc(m.domains, func(d control.Domain) bool { return d.Name == name })
	})
	return m.tell("remove %s %s", name, by)
}

func (m *memory) AskDomain(_ context.Context, name string) error { return m.tell("ask %s", name) }

func (m *memory) Network(context.Context) (control.Network, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.network, m.fail
}

func (m *memory) Adverts(context.Context) ([]control.Advert, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.adverts), m.fail
}

func (m *memory) DecideAdvert(_ context.Context, id peer.ClusterID, accept bool, by string) error {
	m.change(func() {
		for i := range m.adverts {
			if m.adverts[i].ID == string(id) {
				m.adverts[i].Status = map[bool]string{true: control.AdvertAccepted, false: control.AdvertRefused}[accept]
			}
		}
	})
	return m.tell("decide-advert %s accept=%t %s", id, accept, by)
}

func (m *memory) Storage(context.Context) (control.Storage, error) {
	return control.Storage{Class: "liqo"}, m.fail
}

func (m *memory) ReclaimStorage(context.Context, peer.ClusterID) (control.Reclaimed, error) {
	return control.Reclaimed{Claims: 1}, m.fail
}

func (m *memory) ProbeNetwork(_ context.Context, id peer.ClusterID) (control.NetworkProbe, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return control.NetworkProbe{RTTMicroseconds: 42, Message: string(id)}, m.fail
}
