package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// handle is an HTTP handler that returns the value to answer with, or an error.
type handle func(r *http.Request) (any, error)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	handlers := map[string]handle{
		"GET /v1/status":            s.status,
		"GET /v1/peers":             s.peers,
		"GET /v1/peers/{ref}":       s.peer,
		"PUT /v1/peers/{ref}/alias": s.setAlias,
		"GET /v1/history":           s.history,
		"GET /v1/config":            s.config,
		"GET /v1/network":           s.network,
		"GET /v1/storage":           func(r *http.Request) (any, error) { return s.cfg.Backend.Storage(r.Context()) },
		"GET /v1/log/level":         s.logLevel,
		"PUT /v1/log/level":         s.setLogLevel,
	}
	maps.Copy(handlers, s.decisionRoutes())
	maps.Copy(handlers, s.domainRoutes())
	maps.Copy(handlers, s.advertRoutes())
	maps.Copy(handlers, s.resetRoutes())
	maps.Copy(handlers, s.reloadRoutes())
	maps.Copy(handlers, s.diagnoseRoutes())
	for pattern, h := range handlers {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			answer, err := h(r)
			s.answer(w, r, answer, err)
		})
	}
	mux.HandleFunc("GET /v1/watch", s.watch)
	s.addProfiles(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, nil, &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("this agent does not support %s %s", r.Method, r.URL.Path),
			Advice: "compare liqo-agent version with the version in liqo-agent status: restart the agent after an update"})
	})
	return mux
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, body any, err error) {
	status := http.StatusOK
	if err != nil {
		var failed control.ErrorBody
		status, failed = control.BodyOf(err)
		if status == http.StatusInternalServerError {
			s.cfg.Logger.Warn("a request on the control socket failed", "request", r.Method+" "+r.URL.Path, "error", err)
		}
		body = failed
	} else {
		body = control.Filled(body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		// The client is gone, so nobody can be told.
		s.cfg.Logger.Debug("cannot answer on the control socket", "error", err)
	}
}

func (s *Server) status(r *http.Request) (any, error) {
	st, err := s.cfg.Backend.Status(r.Context())
	if err != nil {
		return nil, err
	}
	if !st.StartedAt.IsZero() {
		st.UptimeSeconds = int64(s.cfg.Now().Sub(st.StartedAt) / time.Second)
	}
	st.LogLevel = levelName(s.cfg.Level.Level())
	return st, nil
}

func (s *Server) peers(r *http.Request) (any, error) {
	all := false
	if v := r.URL.Query().Get("all"); v != "" {
		var err error
		if all, err = strconv.ParseBool(v); err != nil {
			return nil, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("all=%q: want 1 or 0", v)}
		}
	}
	return s.list(r.Context(), all)
}

// list returns the peers in order, with all also those that are only remembered. It is
// never nil.
func (s *Server) list(ctx context.Context, all bool) ([]control.Peer, error) {
	known, err := s.cfg.Backend.Peers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]control.Peer, 0, len(known))
	for _, p := range known {
		if all || p.Listed() {
			out = append(out, p.Complete())
		}
	}
	control.SortPeers(out)
	return out, nil
}

func (s *Server) resolve(r *http.Request, ref string) (control.Peer, []control.Peer, error) {
	known, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return control.Peer{}, nil, err
	}
	p, err := control.Resolve(known, ref)
	return p, known, err
}

func (s *Server) peer(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), control.Resolve)
	return p.Complete(), err
}

func (s *Server) setAlias(r *http.Request) (any, error) {
	var body control.Alias
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	p, known, err := s.resolve(r, r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	if err := checkAlias(body.Alias, p, known); err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.SetAlias(r.Context(), peer.ClusterID(p.ID), body.Alias); err != nil {
		return nil, err
	}
	p.Alias = body.Alias
	return p, nil
}

// checkAlias returns an error for an alias that cannot be typed, or that is taken.
func checkAlias(alias string, p control.Peer, known []control.Peer) error {
	if alias == "" {
		return nil
	}
	if _, err := peer.ParseClusterName(alias); err != nil {
		return &control.Error{Kind: control.ErrInvalid, Cause: err, Message: strings.Replace(err.Error(), "cluster name", "alias", 1)}
	}
	if strings.HasPrefix(alias, "-") {
		return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("alias %q begins with a hyphen, so it would be taken for an option", alias)}
	}
	for _, other := range known {
		switch {
		case other.ID == p.ID:
		case other.ID == alias:
			return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("alias %q is the ID of another cluster", alias), Advice: "choose another name"}
		case other.Alias == alias:
			return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("alias %q already names %s", alias, other.ID),
				Advice: "liqo-agent peers alias --remove " + other.ID}
		}
	}
	return nil
}

func (s *Server) history(r *http.Request) (any, error) {
	known, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return nil, err
	}
	q, err := parseHistory(r, known)
	if err != nil {
		return nil, err
	}
	entries, err := s.cfg.Backend.History(r.Context(), q)
	if err != nil {
		return nil, err
	}
	st, err := s.cfg.Backend.Status(r.Context())
	if err != nil {
		return nil, err
	}
	// Some of it is about this cluster itself, such as its invites.
	known = append(known, control.Peer{ID: st.Identity.ClusterID, Name: st.Identity.Name})
	return control.NameEvents(entries, known), nil
}

func parseHistory(r *http.Request, known []control.Peer) (control.HistoryQuery, error) {
	var q control.HistoryQuery
	values := r.URL.Query()
	if ref := values.Get("peer"); ref != "" {
		id, err := control.ResolveID(known, ref)
		if err != nil {
			return q, err
		}
		q.ID = id
	}
	if v := values.Get("since"); v != "" {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return q, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("since=%q: want a time like 2026-11-21T08:00:00Z", v)}
		}
		q.Since = at
	}
	if v := values.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return q, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("limit=%q: want a number, 0 for no limit", v)}
		}
		q.Limit = n
	}
	return q, nil
}

func (s *Server) config(r *http.Request) (any, error) {
	return s.cfg.Backend.Config(r.Context())
}

func (s *Server) network(r *http.Request) (any, error) {
	return s.cfg.Backend.Network(r.Context())
}

func (s *Server) logLevel(*http.Request) (any, error) {
	return control.LogLevel{Level: levelName(s.cfg.Level.Level())}, nil
}

func (s *Server) setLogLevel(r *http.Request) (any, error) {
	var body control.LogLevel
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	level, err := control.ParseLevel(body.Level)
	if err != nil {
		return nil, err
	}
	if before := s.cfg.Level.Level(); before != level {
		// Logged at the higher of both levels, so that it is always logged.
		s.cfg.Level.Set(level)
		s.cfg.Logger.Log(r.Context(), max(before, level, slog.LevelInfo), "log level changed on the control socket",
			"from", levelName(before), "to", levelName(level))
	}
	return control.LogLevel{Level: levelName(level)}, nil
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// decode reads a JSON body that consists of exactly one value.
func decode(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one value")
		}
	}
	if err != nil {
		return &control.Error{Kind: control.ErrInvalid, Cause: err, Message: fmt.Sprintf("the request's body: %v", err)}
	}
	return nil
}

// decodeOptional is decode for requests that may come without a body.
func decodeOptional(r *http.Request, into any) error {
	err := decode(r, into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
