package socket

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer/text"
)

// maxIntervalSeconds is above the limit of intervals, and small enough for a
// time.Duration.
const maxIntervalSeconds = 366 * 24 * 60 * 60

// domainRoutes serves /v1/domains.
func (s *Server) domainRoutes() map[string]handle {
	return map[string]handle{
		"GET /v1/domains":             s.domains,
		"PUT /v1/domains/{name}":      s.addDomain,
		"DELETE /v1/domains/{name}":   s.removeDomain,
		"POST /v1/domains/{name}/ask": s.askDomain,
	}
}

func (s *Server) domains(r *http.Request) (any, error) { return s.listDomains(r.Context()) }

// listDomains returns the search domains, by name.
func (s *Server) listDomains(ctx context.Context) ([]control.Domain, error) {
	known, err := s.cfg.Backend.Domains(ctx)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(known)
	slices.SortFunc(out, func(a, b control.Domain) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// domain returns the present state of a search domain.
func (s *Server) domain(ctx context.Context, name string) (control.Domain, error) {
	known, err := s.listDomains(ctx)
	if err != nil {
		return control.Domain{}, err
	}
	if d, ok := control.FindDomain(known, name); ok {
		return d, nil
	}
	return control.Domain{}, &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%q is not a search domain", text.Excerpt(name)), Advice: "liqo-agent domains list"}
}

func (s *Server) addDomain(r *http.Request) (any, error) {
	var body control.DomainBody
	if err := decodeOptional(r, &body); err != nil {
		return nil, err
	}
	opts := body.DomainOptions
	for _, interval := range []struct {
		name    string
		seconds int64
		to      *time.Duration
	}{{"minIntervalSeconds", body.MinIntervalSeconds, &opts.MinInterval}, {"maxIntervalSeconds", body.MaxIntervalSeconds, &opts.MaxInterval}} {
		if interval.seconds < 0 || interval.seconds > maxIntervalSeconds {
			return nil, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("%s=%d: want 1 to 86400, or 0 for the default", interval.name, interval.seconds)}
		}
		*interval.to = time.Duration(interval.seconds) * time.Second
	}
	named := opts.Name
	opts.Name, opts.By = r.PathValue("name"), by(r.Context())
	opts, err := control.CheckDomain(opts)
	if err != nil {
		return nil, err
	}
	if named != "" && named != opts.Name && named != r.PathValue("name") {
		return nil, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("the body is about %q, the path about %q", text.Excerpt(named), opts.Name)}
	}
	if err := s.cfg.Backend.AddDomain(r.Context(), opts); err != nil {
		return nil, err
	}
	return s.domain(r.Context(), opts.Name)
}

func (s *Server) removeDomain(r *http.Request) (any, error) {
	d, err := s.domain(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.cfg.Backend.RemoveDomain(r.Context(), d.Name, by(r.Context()))
}

func (s *Server) askDomain(r *http.Request) (any, error) {
	d, err := s.domain(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.AskDomain(r.Context(), d.Name); err != nil {
		return nil, err
	}
	return s.domain(r.Context(), d.Name)
}
