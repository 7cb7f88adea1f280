package peering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/kube/tally"
)

// APIStatus says how the Controller gets on with the API server.
type APIStatus struct {
	// Connected is true while the API server answers and the ForeignClusters are
	// known.
	Connected bool
	// Server is the URL of the API server; "" while no kubeconfig is known.
	Server string
	// Kubeconfig is the file in use; "" while there is none.
	Kubeconfig string
	// LastError is why Connected is false, or what failed last; "" when nothing
	// did since the connection.
	LastError string
	// Writes counts the agent's own write requests sent since the start.
	Writes uint64
	// PeerWrites counts the write requests of peers that the gateway passed on since
	// the start.
	PeerWrites uint64
	// ForeignClusters is the number of objects in the API server.
	ForeignClusters int
	// Since is when Connected last changed.
	Since time.Time
	// Trouble says in a word why Connected is false.
	Trouble Trouble
	// Version is that of the API server; "" before it told.
	Version string
	// Forbidden are the permissions that the agent lacked when it last needed them, as
	// the API server says it, sorted.
	Forbidden []string
	// WebhookError is why the configuration of the admission webhook cannot be put in
	// place, and ObjectsError why the agent's other objects cannot; "" when they are.
	WebhookError, ObjectsError string
	// ClockOffset is by how much the clock of the API server is ahead of ours, as far
	// as it was seen to differ at all.
	ClockOffset time.Duration
}

// patience is how long requests must fail without one success in between until
// the connection counts as lost. A restart of the API server that is quicker
// than that is nobody's business.
const patience = 2 * time.Second

// link watches every request to the API server and knows whether there is a
// connection. It logs when that changes, and only then.
type link struct {
	log    *slog.Logger
	now    func() time.Time
	writes atomic.Uint64
	passed atomic.Uint64 // writes of peers
	hear   func()        // hears that the status is another one; nil for nobody
	clock  clock

	deniedSome atomic.Bool // there are denials

	requests     tally.Requests // of the agent
	peerRequests tally.Requests // of peers, passed on
	connections  atomic.Uint64
	looks        looks

	mu           sync.Mutex
	status       APIStatus
	failingSince time.Time // zero while the last request to end succeeded
	succeededAt  time.Time
	reported     string // the kind of trouble last logged
	unauthorized bool   // the last request to end was not accepted
	denials      []denial
	lost         context.CancelCauseFunc
}

// errLost: the API server does not answer any more.
var errLost = errors.New("connection to the API server lost")

// errKubeconfigReplaced: another kubeconfig is to be used.
var errKubeconfigReplaced = errors.New("the kubeconfig was replaced")

// wrap is a transport.WrapperFunc.
func (l *link) wrap(next http.RoundTripper) http.RoundTripper { return &observed{link: l, next: next} }

// observed is a transport that tells a link how each request ends.
type observed struct {
	link *link
	next http.RoundTripper
}

// WrappedRoundTripper lets idle connections be closed through the wrapper.
func (o *observed) WrappedRoundTripper() http.RoundTripper { return o.next }

// RoundTrip implements http.RoundTripper.
func (o *observed) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		o.link.writes.Add(1)
	}
	begun := o.link.now()
	resp, err := o.next.RoundTrip(req)
	o.link.requests.Answered(req, resp, o.link.now().Sub(begun))
	switch {
	case errors.Is(req.Context().Err(), context.Canceled):
		// We gave up ourselves, which says nothing about the server. Running into the
		// time limit does.
	case err != nil:
		o.link.failed(begun, err)
	case resp.StatusCode == http.StatusUnauthorized:
		o.link.unaccepted()
		o.link.failed(begun, errors.New("the API server does not accept the kubeconfig's credentials (401 Unauthorized)"))
	case resp.StatusCode >= http.StatusInternalServerError:
		o.link.failed(begun, fmt.Errorf("the API server answers %s", resp.Status))
	default:
		o.link.clock.look(resp.Header, begun, o.link.now())
		if resp.StatusCode == http.StatusForbidden {
			o.link.denied(req, resp)
		} else {
			o.link.allowed(req)
		}
		o.link.succeeded()
	}
	return resp, err
}

// counted is a transport that counts the writes of peers.
type counted struct {
	link *link
	next http.RoundTripper
}

// WrappedRoundTripper lets idle connections be closed through the wrapper.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		c.link.passed.Add(1)
	}
	begun := c.link.now()
	resp, err := c.next.RoundTrip(req)
	c.link.peerRequests.Answered(req, resp, c.link.now().Sub(begun))
	return resp, err
}

func (l *link) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failingSince, l.succeededAt, l.unauthorized = time.Time{}, l.now(), false
}

// unaccepted notes that the server does not accept the credentials.
func (l *link) unaccepted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unauthorized = true
}

// failed notes a request that was sent at begun and failed. A server that leaves
// a request without an answer has failed all the time since then, unless it
// answered another one.
func (l *link) failed(begun time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.LastError = err.Error()
	if l.failingSince.IsZero() {
		l.failingSince = begun
		if begun.Before(l.succeededAt) {
			l.failingSince = l.succeededAt
		}
	}
	if l.lost != nil && l.now().Sub(l.failingSince) >= patience {
		l.lost(errLost)
	}
}

// note keeps an error for Status that is not a matter of the connection.
func (l *link) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.LastError = err.Error()
}

// trying notes which server is tried.
func (l *link) trying(server, kubeconfig string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Server, l.status.Kubeconfig = server, kubeconfig
	// What was missing there need not be missing here.
	l.denials = nil
	l.deniedSome.Store(false)
	l.status.Version, l.status.WebhookError, l.status.ObjectsError = "", "", ""
}

// connected notes that the connection is up. lost is called when it is not any
// more.
func (l *link) connected(lost context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connections.Add(1)
	l.lost, l.failingSince, l.reported = lost, time.Time{}, ""
	l.status.Connected, l.status.LastError, l.status.Since, l.status.Trouble = true, "", l.now(), TroubleNone
	l.tell()
	l.log.Info("connected to the API server", "server", l.status.Server, "kubeconfig", l.status.Kubeconfig)
}

// disconnected notes the end of a connection.
func (l *link) disconnected(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = nil
	if !l.status.Connected {
		return
	}
	l.status.Connected, l.status.Since, l.status.Trouble = false, l.now(), TroubleNone
	if errors.Is(cause, errLost) {
		l.status.Trouble = l.trouble()
	}
	l.tell()
	switch {
	case errors.Is(cause, errRights):
		l.log.Info("the agent's user has other rights now, connecting anew", "server", l.status.Server)
	case errors.Is(cause, errKubeconfigReplaced):
		l.log.Info("the kubeconfig was replaced, connecting anew", "server", l.status.Server)
	case errors.Is(cause, errLost):
		l.log.Warn("lost the connection to the API server, trying again until it answers",
			"server", l.status.Server, "error", l.status.LastError)
		l.reported = "unreachable"
	}
}

// tell says that the status is another one.
func (l *link) tell() {
	if l.hear != nil {
		l.hear()
	}
}

// waiting notes why there is no connection yet.
func (l *link) waiting(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.LastError = err.Error()
	kind := "unreachable"
	switch {
	case errors.Is(err, ErrSwitchedOff):
		kind = "off"
	case errors.Is(err, ErrNoKubeconfig):
		kind = "none"
	case l.status.Server == "":
		kind = err.Error()
	}
	if kind == "off" || kind == "none" {
		l.status.Server, l.status.Kubeconfig = "", ""
	}
	trouble := map[string]Trouble{"off": TroubleOff, "none": TroubleNoKubeconfig, "unreachable": l.trouble()}[kind]
	if trouble == TroubleNone {
		trouble = TroubleKubeconfig
	}
	if l.status.Trouble != trouble {
		l.status.Trouble = trouble
		l.tell()
	}
	if l.reported == kind {
		return
	}
	l.reported = kind
	switch kind {
	case "off":
		l.log.Info("working without an API server", "reason", err)
	case "none":
		l.log.Info("no API server is known yet; ForeignClusters appear as soon as there is one", "reason", err)
	case "unreachable":
		l.log.Warn("waiting for the API server", "server", l.status.Server, "kubeconfig", l.status.Kubeconfig, "error", err)
	default:
		l.log.Warn("the kubeconfig cannot be used; looking at it again when it changes", "error", err)
	}
}

// trouble says what is the matter with a server that is known.
func (l *link) trouble() Trouble {
	switch {
	case l.unauthorized:
		return TroubleCredentials
	case l.failingSince.IsZero() && !l.succeededAt.IsZero():
		return TroubleSetup
	}
	return TroubleUnreachable
}

func (l *link) snapshot() APIStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.status
	status.Forbidden, status.ClockOffset = l.forbidden(), time.Duration(l.clock.offset.Load())
	status.Writes, status.PeerWrites = l.writes.Load(), l.passed.Load()
	return status
}
