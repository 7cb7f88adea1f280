package decisions

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// epoch is when tests begin. Authorities are made by the clock on the wall.
var epoch = time.Now().UTC().Truncate(time.Second)

const (
	barn peer.ClusterID = "barn"
	silo peer.ClusterID = "silo"
	self peer.ClusterID = "self"
)

// box is another cluster, with a key of its own.
type box struct {
	t     testing.TB
	id    peer.ClusterID
	dir   string
	key   *trust.Key
	fleet *x509.Certificate
}

func newBox(t testing.TB, id peer.ClusterID) *box {
	t.Helper()
	b := &box{t: t, id: id, dir: t.TempDir()}
	key, err := trust.LoadOrCreateKey(b.dir)
	must(t, err)
	b.key = key
	return b
}

func (b *box) rotate() {
	b.t.Helper()
	key, err := trust.Rotate(b.dir, b.key)
	must(b.t, err)
	b.key = key
}

func (b *box) fp() peer.Fingerprint { return b.key.Fingerprint() }

// shown is what the box shows in a TLS handshake, verified.
func (b *box) shown() trust.Shown {
	b.t.Helper()
	issuer := trust.NewIssuer(b.key, func() peer.ClusterID { return b.id })
	if b.fleet != nil {
		issuer.SetFleetCertificate(b.fleet)
	}
	cert, err := issuer.GetClientCertificate(nil)
	must(b.t, err)
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		must(b.t, err)
		chain = append(chain, c)
	}
	shown, err := trust.Verify(chain, time.Time{})
	must(b.t, err)
	return shown
}

func (b *box) caller(source string) endpoint.Caller {
	return endpoint.Caller{ID: b.id, Source: netip.MustParseAddr(source), Shown: b.shown()}
}

func (b *box) ask() wire.Ask {
	return wire.Ask{Greeting: wire.Greeting{Identity: peer.Identity{ClusterID: b.id, ClusterName: "The " + string(b.id), GuestNamespace: "liqo"}, Port: 6447}}
}

// fleet is an authority that can certify boxes.
type fleet struct {
	certPEM, keyPEM []byte
	cert            *x509.Certificate
}

func newFleet(t testing.TB) fleet {
	t.Helper()
	certPEM, keyPEM, err := trust.NewFleetCA("test fleet", 10, time.Now())
	must(t, err)
	return fleet{certPEM, keyPEM, parsePEM(t, certPEM)}
}

// certify gives the box a certificate of the fleet for the cluster ID.
func (f fleet) certify(b *box, id peer.ClusterID) {
	b.t.Helper()
	cert, err := trust.SignFleet(f.certPEM, f.keyPEM, id, b.key.PublicPEM(), 365, time.Now())
	must(b.t, err)
	b.fleet = parsePEM(b.t, cert)
}

func parsePEM(t testing.TB, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert
}

// bed is a Store on a database in memory, with what surrounds it.
type bed struct {
	*Store
	t     testing.TB
	store *state.Store
	own   peer.Fingerprint

	mu      sync.Mutex
	now     time.Time
	seen    map[peer.ClusterID]peer.Peer
	changed map[peer.ClusterID]int
	opened  []Request
}

func newBed(t testing.TB, p Policy) *bed {
	t.Helper()
	b := &bed{t: t, now: epoch, own: peer.FingerprintOf([]byte("our key")), seen: map[peer.ClusterID]peer.Peer{}, changed: map[peer.ClusterID]int{}}
	store, err := state.Open(context.Background(), "/nonexistent", state.Options{Memory: true, Now: b.clock})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	b.store = store
	b.restart(p)
	return b
}

// restart opens the Store anew, as after a restart of the agent.
func (b *bed) restart(p Policy) {
	b.t.Helper()
	l, err := Open(context.Background(), b.config(p))
	must(b.t, err)
	b.Store = l
}

// restartEmpty is a restart after which nothing is remembered.
func (b *bed) restartEmpty() {
	b.t.Helper()
	store, err := state.Open(context.Background(), "/nonexistent", state.Options{Memory: true, Now: b.clock})
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, store.Close()) })
	b.store = store
	b.restart(asks())
}

func (b *bed) config(p Policy) Config {
	return Config{
		Database: b.store,
		Self:     func() peer.ClusterID { return self },
		SelfKey:  func() peer.Fingerprint { return b.own },
		Peer: func(id peer.ClusterID) (peer.Peer, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			p, ok := b.seen[id]
			return p, ok
		},
		Policy: p,
		Changed: func(id peer.ClusterID) {
			if b.Store != nil {
				b.Policy(id)
				b.Requests() // no lock is held, or this would hang
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed[id]++
		},
		Opened: func(r Request) {
			b.Requests() // no lock is held, or this would hang
			b.mu.Lock()
			defer b.mu.Unlock()
			b.opened = append(b.opened, r)
		},
		Now: b.clock,
	}
}

// told returns who was told since the last time that it may do more.
func (b *bed) told() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.opened
	b.opened = nil
	return told
}

func (b *bed) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bed) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// sees makes the recorder know a key of a peer.
func (b *bed) sees(id peer.ClusterID, fp peer.Fingerprint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[id] = peer.Peer{ID: id, Name: "The " + string(id), Fingerprint: fp, Phase: peer.PhasePresent}
}

// changes returns how often Changed was called for a peer since the last time.
func (b *bed) changes(id peer.ClusterID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.changed[id]
	delete(b.changed, id)
	return n
}

// history returns the kinds of a peer's events, oldest first.
func (b *bed) history(id peer.ClusterID) string {
	b.t.Helper()
	var kinds []string
	for _, e := range b.events(id) {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func (b *bed) events(id peer.ClusterID) []peer.Event {
	b.t.Helper()
	events, err := b.store.History(context.Background(), state.HistoryQuery{ID: id})
	must(b.t, err)
	return events
}

// quiet fails unless do writes nothing.
func (b *bed) quiet(what string, do func()) {
	b.t.Helper()
	before := b.store.Transactions()
	if do(); b.store.Transactions() != before {
		b.t.Errorf("%s wrote although nothing changed", what)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func statics(s ...config.StaticPeer) Policy { return Policy{Accept: "ask", Static: s} }

func asks() Policy { return Policy{Accept: "ask"} }
