package peering

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
)

// ManagerHealth owns the status of the ClusterConfig: its condition Healthy, and the
// settings that hold.
const ManagerHealth = "liqo-agent-health"

// Health is what the condition Healthy of the ClusterConfig is to say.
type Health struct {
	// Healthy: nothing is the matter.
	Healthy bool
	// Reason is one word for programs, and Message a sentence for people.
	Reason, Message string
}

// HealthChanged says that Config.Health or Config.Effective may answer otherwise than
// before. It never blocks. Any goroutine may call it at any time.
func (c *Controller) HealthChanged() {
	if s := c.current(); s != nil {
		wake(s.settings.unwell)
	}
}

// Trouble says why there is no connection, in one word.
type Trouble string

// The kinds of trouble.
const (
	// TroubleNone: there is a connection, or nobody has tried yet.
	TroubleNone Trouble = ""
	// TroubleOff: the configuration says to work without an API server.
	TroubleOff Trouble = "Off"
	// TroubleNoKubeconfig: there is no kubeconfig.
	TroubleNoKubeconfig Trouble = "NoKubeconfig"
	// TroubleKubeconfig: there is a kubeconfig that cannot be used.
	TroubleKubeconfig Trouble = "Kubeconfig"
	// TroubleCredentials: the API server does not accept the credentials.
	TroubleCredentials Trouble = "Credentials"
	// TroubleUnreachable: the API server does not answer, or only with failures of its
	// own.
	TroubleUnreachable Trouble = "Unreachable"
	// TroubleSetup: the API server answers, and what the agent needs there cannot be put
	// in place or read.
	TroubleSetup Trouble = "Setup"
)

const (
	// maxForbidden bounds the missing permissions that are kept.
	maxForbidden = 16
	// forbiddenFor is for how long a missing permission counts that was not met again:
	// what needs it is tried again sooner.
	forbiddenFor = 10 * time.Minute
	// maxStatusText is how much of an answer is looked at for why something is
	// forbidden.
	maxStatusText = 8 << 10
	// clockEvery is how often the API server's clock is looked at.
	clockEvery = time.Minute
)

// denial is a permission that the agent lacks.
type denial struct {
	what string // as the API server says it
	path string // where it was met last, with the method
	at   time.Time
}

// denied notes a request that was forbidden because of a missing permission. What
// is forbidden for another reason, such as a quota or a namespace that is going, is
// none.
func (l *link) denied(request *http.Request, response *http.Response) {
	text := peek(response)
	what := permission(text)
	if what == "" {
		return
	}
	path := request.Method + " " + request.URL.Path
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.denials, func(d denial) bool { return d.what == what })
	switch {
	case at >= 0:
		l.denials[at].path, l.denials[at].at = path, l.now()
		return
	case len(l.denials) >= maxForbidden:
		l.denials = slices.Delete(l.denials, 0, 1)
	}
	l.denials = append(l.denials, denial{what, path, l.now()})
	l.deniedSome.Store(true)
	l.tell()
}

// peek returns the beginning of an answer's body, which can still be read from the
// start.
func peek(response *http.Response) string {
	begin, _ := io.ReadAll(io.LimitReader(response.Body, maxStatusText)) // the reader of the body meets the error again
	response.Body = &peeked{Reader: io.MultiReader(strings.NewReader(string(begin)), response.Body), Closer: response.Body}
	return string(begin)
}

type peeked struct {
	io.Reader
	io.Closer
}

// permission returns what the API server says about a missing permission, "" when
// it says something else.
func permission(answer string) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(answer), &status) != nil {
		return ""
	}
	message := sentence(status.Message)
	if at := strings.Index(message, `User "`); at >= 0 && strings.Contains(message[at:], " cannot ") {
		return message[at:] // without the name of the object
	}
	if at := strings.Index(message, "attempting to grant RBAC permissions not currently held"); at >= 0 {
		return message
	}
	return ""
}

// allowed notes a request that was not forbidden.
func (l *link) allowed(request *http.Request) {
	if !l.deniedSome.Load() {
		return
	}
	path := request.Method + " " + request.URL.Path
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.denials)
	l.denials = slices.DeleteFunc(l.denials, func(d denial) bool { return d.path == path })
	l.deniedSome.Store(len(l.denials) > 0)
	if len(l.denials) != before {
		l.tell()
	}
}

// forbidden returns the permissions that are missing now.
func (l *link) forbidden() []string {
	var out []string
	for _, d := range l.denials {
		if l.now().Sub(d.at) < forbiddenFor {
			out = append(out, d.what)
		}
	}
	slices.Sort(out)
	return out
}

// clock compares the API server's clock with ours, now and then.
type clock struct {
	next   atomic.Int64 // when it is looked at again, in Unix nanoseconds
	offset atomic.Int64 // how far the server's is ahead of ours, in nanoseconds
}

// look takes in what the server said at a time between two of ours. A clock that
// differs by less than the answer took, and the second to which it is told, does not.
func (c *clock) look(header http.Header, sent, received time.Time) {
	if received.UnixNano() < c.next.Load() {
		return
	}
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	c.next.Store(received.Add(clockEvery).UnixNano())
	// Their second began at some time up to a second ago.
	offset := time.Duration(0)
	switch theirs = theirs.Round(0); {
	case theirs.After(received.Round(0)):
		offset = theirs.Sub(received.Round(0))
	case theirs.Add(time.Second).Before(sent.Round(0)):
		offset = theirs.Add(time.Second).Sub(sent.Round(0))
	}
	c.offset.Store(int64(offset))
}

// askVersion asks the API server for its version, for people. It is asked again
// with each connection.
func (s *session) askVersion(ctx context.Context) {
	var found struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := s.client.getJSON(ctx, "/version", nil, &found); err != nil {
		s.cfg.Logger.Debug("the API server does not tell its version", "error", err)
		return
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.link.status.Version = sentence(found.GitVersion)
}

// placed notes whether the agent's own objects are in place: the webhook's
// configuration, and the others.
func (l *link) placed(hook, others error) {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.WebhookError != text(hook) || l.status.ObjectsError != text(others) {
		l.status.WebhookError, l.status.ObjectsError = text(hook), text(others)
		l.tell()
	}
}

// show makes the status of the ClusterConfig say what is so. It returns the pause
// before it is to be tried again, 0 for never.
func (r *runtimeConfig) show(ctx context.Context) time.Duration {
	if r.cfg.Health == nil {
		return 0
	}
	c := r.store.get(api.ClusterConfigName)
	if c == nil || c.DeletionTimestamp != nil {
		return 0
	}
	shown := c.Status.Condition(api.ConditionHealthy)
	var next api.ClusterConfigStatus
	if shown != nil {
		next.Conditions = []api.Condition{*shown}
	}
	if health, known := r.cfg.Health(); known {
		v := verdict{status: api.ConditionFalse, reason: health.Reason, message: health.Message}
		if health.Healthy {
			v.status = api.ConditionTrue
		}
		if shown == nil || shown.Status != v.status || shown.Reason != v.reason || shown.Message != v.message {
			next.Conditions = []api.Condition{v.condition(api.ConditionHealthy, c.Status.Conditions, r.cfg.Now())}
		}
	}
	if r.cfg.Effective != nil {
		now := r.cfg.Effective()
		next.Effective = &now
	}
	if reflect.DeepEqual(next.Effective, c.Status.Effective) && (len(next.Conditions) == 0 || shown != nil && reflect.DeepEqual(next.Conditions[0], *shown)) {
		return 0
	}
	object := applied{
		Metadata: appliedMeta{Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
		Status:   next,
	}
	written, err := applyKind(ctx, r.client, r.store.kind, "status", object, ManagerHealth, true)
	switch {
	case err == nil:
		r.store.wrote(written)
		r.retry.Forget(healthRetry)
		return 0
	case ctx.Err() != nil:
		return 0
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		r.complainOnce("health", "the ClusterConfig cannot show how the agent is", err)
		return jitter(refusedRetry)
	}
	r.checkIfMissing(err)
	pause := jitter(r.retry.When(healthRetry))
	r.cfg.Logger.Debug("showing how the agent is failed, trying again", "in", pause, "error", err)
	return pause
}

// healthRetry is the item of the rate limiter for the condition.
const healthRetry = api.ConditionHealthy
