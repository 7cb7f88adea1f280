package socket

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
)

// A recording takes thirty seconds unless the request says otherwise, and a minute
// at most: it slows the agent down.
const (
	defaultRecording = 30 * time.Second
	maxRecording     = time.Minute
)

// addProfiles adds the routes for metrics, pending work with peers, and profiles for go
// tool pprof. It does not use net/http/pprof, because importing that adds handlers to
// the default mux of net/http.
func (s *Server) addProfiles(mux *http.ServeMux) {
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.cfg.Metrics)
	}
	if s.cfg.Explain != nil {
		mux.HandleFunc("GET /debug/peering", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_ = s.cfg.Explain(w) // the client's loss
		})
	}
	for pattern, profile := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /debug/pprof/{$}":     listProfiles,
		"GET /debug/pprof/profile": recordCPU,
		"GET /debug/pprof/trace":   recordTrace,
		"GET /debug/pprof/{name}":  writeProfile,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := profile(w, r); err != nil {
				s.answer(w, r, nil, err)
			}
		})
	}
}

// listProfiles answers with the names of the profiles, one per line.
func listProfiles(w http.ResponseWriter, _ *http.Request) error {
	lines := []string{"profile", "trace"}
	for _, p := range pprof.Profiles() {
		lines = append(lines, p.Name())
	}
	slices.Sort(lines)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // the client's loss
	return nil
}

// writeProfile answers with one present profile: as text with debug=1 or 2, else for go
// tool pprof. gc=1 collects garbage first.
func writeProfile(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	p := pprof.Lookup(name)
	if p == nil {
		return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("there is no profile %q", name), Advice: "GET /debug/pprof/ lists them"}
	}
	debug, err := number(r, "debug", 0, 2)
	if err != nil {
		return err
	}
	gc, err := number(r, "gc", 0, 1)
	if err != nil {
		return err
	}
	if gc == 1 {
		runtime.GC()
	}
	attach(w, name, debug > 0)
	_ = p.WriteTo(w, debug) // the client's loss
	return nil
}

// recordCPU answers with a CPU profile of the next seconds.
func recordCPU(w http.ResponseWriter, r *http.Request) error {
	return record(w, r, "profile", pprof.StartCPUProfile, pprof.StopCPUProfile)
}

// recordTrace answers with an execution trace of the next seconds, for go tool
// trace.
func recordTrace(w http.ResponseWriter, r *http.Request) error {
	return record(w, r, "trace", trace.Start, trace.Stop)
}

// record records for as long as the request says, or until it ends.
func record(w http.ResponseWriter, r *http.Request, name string, start func(io.Writer) error, stop func()) error {
	seconds, err := number(r, "seconds", 1, int(maxRecording/time.Second))
	if err != nil {
		return err
	}
	length := time.Duration(seconds) * time.Second
	if length == 0 {
		length = defaultRecording
	}
	// The limit of every other request is too short for it.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(length + requestTimeout)); err != nil {
		return fmt.Errorf("allow time for a recording: %w", err)
	}
	attach(w, name, false)
	to := &shared{to: w}
	if err := start(to); err != nil {
		w.Header().Del("Content-Disposition")
		return &control.Error{Kind: control.ErrUnavailable, Message: "another recording is in progress: " + err.Error(), Cause: err, Advice: "wait for it to end"}
	}
	defer stop()
	to.flush() // so that the client knows that it began
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return nil
}

// shared is an answer that a recording writes on a goroutine of its own.
type shared struct {
	mu sync.Mutex
	to http.ResponseWriter
}

// Write implements io.Writer.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

func (s *shared) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = http.NewResponseController(s.to).Flush() // if the client is gone, the request's context ends
}

// attach sets the headers for a profile: text to show, or a file to save.
func attach(w http.ResponseWriter, name string, text bool) {
	if text {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
}

// number reads a numeric parameter of a request, 0 if it is absent.
func number(r *http.Request, name string, least, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil && (n < least || n > most) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("%s=%q: want a number from %d to %d", name, text, least, most), Cause: err}
	}
	return n, nil
}
