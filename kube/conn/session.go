package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/peer/text"
)

// listTimeout is how long the first lists may take; some thousand objects from a slow
// machine take longer than one.
const listTimeout = 30 * time.Second

// Session is one attempt to connect to an API server, and the connection that comes of
// it.
type Session struct {
	// Passage is the way for requests of others.
	Passage Passage

	link   *Link
	config *rest.Config

	mu       sync.Mutex
	reported map[string]bool // kinds of failures that were logged
}

// Open returns a Session with the API server of config, of which nothing was asked yet.
func (l *Link) Open(config *rest.Config) (*Session, error) {
	s := &Session{link: l, config: config, reported: make(map[string]bool)}
	var err error
	if s.Passage, err = l.passage(config); err != nil {
		return nil, err
	}
	return s, nil
}

// Observed returns the configuration of a client whose requests tell how the connection
// is, and count as the agent's own.
func (s *Session) Observed() *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Wrap(s.link.wrap)
	return config
}

// Unobserved returns the configuration of a client whose requests do neither.
func (s *Session) Unobserved() *rest.Config { return s.config }

// Connected says that the connection is up. lost is called when it is not any more.
func (s *Session) Connected(lost context.CancelCauseFunc) { s.link.connected(lost) }

// Disconnected says that the connection ended.
func (s *Session) Disconnected(cause error) { s.link.disconnected(cause) }

// Listed is one kind of objects: what they are called, and what is closed once all of
// them were listed.
type Listed struct {
	Kind   string
	Synced <-chan struct{}
}

// Sync waits for the first complete list of every kind.
func (s *Session) Sync(ctx context.Context, kinds []Listed) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for _, first := range kinds {
		select {
		case <-first.Synced:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return fmt.Errorf("the API server does not list %s: %s", first.Kind, s.link.Status().LastError)
		}
	}
	return nil
}

// Await waits for the first list of a kind whose absence is no reason to do
// nothing else, and reports whether there was one before ctx ended.
func (s *Session) Await(ctx context.Context, first Listed) bool {
	patience := time.NewTimer(listTimeout)
	defer patience.Stop()
	for {
		select {
		case <-first.Synced:
			return true
		case <-ctx.Done():
			return false
		case <-patience.C:
			s.WarnOnce(first.Kind, "the API server does not list "+first.Kind+", asking again", errors.New(s.link.Status().LastError))
		}
	}
}

// NoteError keeps an error for Status that is not a matter of the connection.
func (s *Session) NoteError(err error) { s.link.note(err) }

// WarnOnce logs a failure that lasts, once for each kind while the connection
// lasts: the API server may fail in the same way for a thousand clusters.
func (s *Session) WarnOnce(kind, message string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.note(err)
	if !s.reported[kind] {
		s.reported[kind] = true
		s.link.log.Warn(message, "error", err)
	}
}

// Placed says whether the agent's own objects are in place: the webhook's
// configuration, and the others.
func (s *Session) Placed(hook, others error) { s.link.placed(hook, others) }

// AskVersion asks the API server for its version, for people.
func (s *Session) AskVersion(ctx context.Context, client interface {
	Get(ctx context.Context, path string, into any) error
}) {
	var found struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := client.Get(ctx, "/version", &found); err != nil {
		s.link.log.Debug("the API server does not tell its version", "error", err)
		return
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.link.status.Version = text.Sentence(found.GitVersion)
}
