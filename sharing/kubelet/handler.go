package kubelet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/usage"
	"liqo.io/agent/throttle"
)

const (
	// answerIn bounds everything before a stream begins, and answers that are none.
	answerIn = 30 * time.Second
	// idleFor is how long a stream may be silent, as with a kubelet.
	idleFor = 4 * time.Hour
	// lingerFor is how long nothing may move on the streams after one direction has
	// ended.
	lingerFor = 10 * time.Second
	// maxStreams is how many logs, execs, attaches and port-forwards there may be at
	// the same time, and streamsPerCaller how many of one caller.
	maxStreams       = 96
	streamsPerCaller = 64
)

// handler answers the calls of one run.
type handler struct {
	ctx    context.Context // of the run: no stream outlives it
	find   func(namespace, pod string) (Place, bool)
	usage  Usage
	gate   *gate
	logger *slog.Logger
	// proven is called with every caller who showed a good certificate.
	proven func()

	streams *throttle.Slots[string] // by caller
	mu      sync.Mutex
	calls   sync.WaitGroup
	closed  bool
}

// enter counts a call, unless the run is at its end.
func (h *handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.calls.Add(1)
	return true
}

// wait returns when the last call has ended; there are no further ones.
func (h *handler) wait() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.calls.Wait()
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		say(w, http.StatusServiceUnavailable, "the agent is stopping")
		return
	}
	defer h.calls.Done()
	if err := h.serve(w, r); err != nil {
		r := &refusal{status: http.StatusInternalServerError, text: err.Error()}
		_ = errors.As(err, &r)
		say(w, r.status, r.text)
	}
}

// say answers with a sentence. Kubelets answer in plain text, and that is what the
// API server repeats.
func say(w http.ResponseWriter, status int, text string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // who is gone needs no answer
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), answerIn)
	defer cancel()
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero value is a source, too
	who, err := h.gate.caller(ctx, from.Addr(), r.TLS, r.Header)
	if err != nil {
		return err
	}
	h.proven()
	conn := connOf(r.Context())
	if who.certified {
		conn.belongs(who.Name) // already while the API server is asked
	}
	path := r.URL.EscapedPath()
	asked, malformed := parse(r.Method, path, r.URL.RawQuery)
	var place Place
	found := malformed == nil && asked.ofPod()
	switch {
	case found:
		place, found = h.find(asked.namespace, asked.pod)
	case malformed == nil && asked.node == "":
		asked.node = proxiedNode(r.Header)
	}
	// Whoever may not call learns nothing, not even which pods there are.
	p := needed(r.Method, path, asked)
	p.node = place.Node + asked.node // a call has one of them at most
	if err := h.gate.permit(ctx, who, p); err != nil {
		conn.belongs("")
		return err
	}
	conn.belongs(who.Name)
	switch {
	case malformed != nil:
		return malformed
	case asked.ofPod() && !found:
		return refuse(http.StatusNotFound, "pod %q in namespace %q is not at any provider (any more, or yet)", asked.pod, asked.namespace)
	case !asked.ofPod():
		return h.answerForNode(ctx, w, asked)
	}
	if !h.streams.Take(who.Name) {
		return refuse(http.StatusTooManyRequests, "too many logs, execs and port-forwards are open already (%d of one caller, %d in all)", streamsPerCaller, maxStreams)
	}
	defer h.streams.Release(who.Name)
	h.logger.Debug("A call to a pod at a provider.", "caller", who.Name, "call", asked.subresource(),
		"namespace", asked.namespace, "pod", asked.pod, "provider", place.ID)
	if asked.kind == containerLogs {
		return h.logs(w, r, asked, place)
	}
	return h.stream(w, r, asked, place)
}

// answerForNode answers what is asked about a node, or about all virtual nodes where the
// caller does not say which.
func (h *handler) answerForNode(ctx context.Context, w http.ResponseWriter, asked call) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	switch asked.kind {
	case health:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok") // who is gone needs no answer
	case resourceMetrics, statsSummary:
		reports, err := h.measured(ctx, asked.node)
		if err != nil {
			return err
		}
		write := usage.WriteResource
		if asked.kind == statsSummary {
			w.Header().Set("Content-Type", "application/json")
			write = usage.WriteSummary
		}
		_ = write(w, reports) // the same
	}
	return nil
}

// measured returns what the pods of a node use, or of all nodes with "".
func (h *handler) measured(ctx context.Context, node string) ([]usage.Report, error) {
	if node == "" {
		return h.usage.All(ctx), nil
	}
	report, known := h.usage.Node(ctx, node)
	if !known {
		return nil, refuse(http.StatusNotFound, "there is no virtual node %q", node)
	}
	return []usage.Report{report}, nil
}

// unreachable is the answer when the provider gave none.
func unreachable(provider peer.ClusterID, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return refuse(http.StatusGatewayTimeout, "provider %s did not answer in time: %v", provider, err)
	}
	return refuse(http.StatusBadGateway, "provider %s cannot be reached: %v", provider, err)
}
