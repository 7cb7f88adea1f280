package conn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/kube/tally"
)

// patience is how long requests must fail without one success in between until
// the connection counts as lost. A restart of the API server that is quicker
// than that is nobody's business.
const patience = 2 * time.Second

// Config is what a Link needs. Its functions are called on several goroutines.
type Config struct {
	// Kubeconfig returns the setting: a path, "" for the usual places ($KUBECONFIG, the
	// agent's own, K3s's own, ~/.kube/config), or KubeconfigNone. It is asked again and
	// again, so a changed setting takes effect by itself.
	Kubeconfig func() string
	// Another is told, before the first attempt to connect, that another kubeconfig is in
	// use than before. It may lead to a different API server.
	Another func()
	// StatusChanged is told that Status answers otherwise than before in more than its
	// counters. It must neither block nor call Status. The field may be nil.
	StatusChanged func()
	// Logger receives one line per change of the connection.
	Logger *slog.Logger
	// Now is the clock. It must have a monotonic part.
	Now func() time.Time
}

// Link is the way to the local API server. It watches every request and knows whether
// there is a connection. It logs when that changes, and only then.
type Link struct {
	locator    locator
	kubeconfig func() string
	another    func()
	pollEvery  time.Duration // how often the kubeconfig's files are looked at

	log     *slog.Logger
	now     func() time.Time
	started time.Time
	writes  atomic.Uint64
	passed  atomic.Uint64 // writes of others
	hear    func()        // hears that the status is another one; nil for nobody
	clock   clock

	deniedSome atomic.Bool // there are denials

	requests       tally.Requests // of the agent
	passedRequests tally.Requests // of others
	connections    atomic.Uint64

	mu           sync.Mutex
	status       Status
	failingSince time.Time // zero while the last request to end succeeded
	succeededAt  time.Time
	reported     string // the kind of trouble last logged
	unauthorized bool   // the last request to end was not accepted
	denials      []denial
	lost         context.CancelCauseFunc
}

// New returns a Link that does nothing until Run is called.
func New(cfg Config) *Link {
	started := cfg.Now()
	return &Link{
		locator: newLocator(), kubeconfig: cfg.Kubeconfig, another: cfg.Another, pollEvery: 3 * time.Second,
		log: cfg.Logger, now: cfg.Now, started: started, hear: cfg.StatusChanged, status: Status{Since: started},
	}
}

// errLost: the API server does not answer any more.
var errLost = errors.New("connection to the API server lost")

// errKubeconfigReplaced: another kubeconfig is to be used.
var errKubeconfigReplaced = errors.New("the kubeconfig was replaced")

// ErrRights is for a function that Run calls: the agent's user may do what it could not
// when the connection was made, so that the next one is to be made at once.
var ErrRights = errors.New("the agent's user has other rights now")

func (l *Link) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failingSince, l.succeededAt, l.unauthorized = time.Time{}, l.now(), false
}

// unaccepted notes that the server does not accept the credentials.
func (l *Link) unaccepted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unauthorized = true
}

// failed notes a request that was sent at begun and failed. A server that leaves
// a request without an answer has failed all the time since then, unless it
// answered another one.
func (l *Link) failed(begun time.Time, err error) {
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
func (l *Link) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.LastError = err.Error()
}

// trying notes which server is tried.
func (l *Link) trying(server, kubeconfig string) {
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
func (l *Link) connected(lost context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connections.Add(1)
	l.lost, l.failingSince, l.reported = lost, time.Time{}, ""
	l.status.Connected, l.status.LastError, l.status.Since, l.status.Trouble = true, "", l.now(), TroubleNone
	l.tell()
	l.log.Info("connected to the API server", "server", l.status.Server, "kubeconfig", l.status.Kubeconfig)
}

// disconnected notes the end of a connection.
func (l *Link) disconnected(cause error) {
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
	case errors.Is(cause, ErrRights):
		l.log.Info("the permissions of the agent changed, connecting again", "server", l.status.Server)
	case errors.Is(cause, errKubeconfigReplaced):
		l.log.Info("the kubeconfig was replaced, connecting again", "server", l.status.Server)
	case errors.Is(cause, errLost):
		l.log.Warn("lost the connection to the API server, trying again",
			"server", l.status.Server, "error", l.status.LastError)
		l.reported = "unreachable"
	}
}

// placed notes whether the agent's own objects are in place: the webhook's
// configuration, and the others.
func (l *Link) placed(hook, others error) {
	message := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.WebhookError != message(hook) || l.status.ObjectsError != message(others) {
		l.status.WebhookError, l.status.ObjectsError = message(hook), message(others)
		l.tell()
	}
}

// tell says that the status is another one.
func (l *Link) tell() {
	if l.hear != nil {
		l.hear()
	}
}

// waiting notes why there is no connection yet.
func (l *Link) waiting(err error) {
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
		l.log.Info("no API server is known yet; ForeignClusters are created when there is one", "reason", err)
	case "unreachable":
		l.log.Warn("waiting for the API server", "server", l.status.Server, "kubeconfig", l.status.Kubeconfig, "error", err)
	default:
		l.log.Warn("the kubeconfig cannot be used; reading it again until it can", "error", err)
	}
}

// trouble says what is the matter with a server that is known.
func (l *Link) trouble() Trouble {
	switch {
	case l.unauthorized:
		return TroubleCredentials
	case l.failingSince.IsZero() && !l.succeededAt.IsZero():
		return TroubleSetup
	}
	return TroubleUnreachable
}
