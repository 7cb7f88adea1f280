package control

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/peer/text"
)

// maxIntervalSeconds is above the limit of intervals, and small enough for a
// time.Duration.
const maxIntervalSeconds = 366 * 24 * 60 * 60

// domainBody is DomainOptions on the wire. The domain may be left out: it is in the
// path.
type domainBody struct {
	DomainOptions
	MinIntervalSeconds int64 `json:"minIntervalSeconds,omitempty"`
	MaxIntervalSeconds int64 `json:"maxIntervalSeconds,omitempty"`
}

// searching serves /v1/domains.
func (s *Server) searching() map[string]handle {
	return map[string]handle{
		"GET /v1/domains":             s.domains,
		"PUT /v1/domains/{name}":      s.addDomain,
		"DELETE /v1/domains/{name}":   s.removeDomain,
		"POST /v1/domains/{name}/ask": s.askDomain,
	}
}

func (s *Server) domains(r *http.Request) (any, error) { return s.listDomains(r.Context()) }

// listDomains returns the search domains, by name. It is never nil.
func (s *Server) listDomains(ctx context.Context) ([]Domain, error) {
	known, err := s.cfg.Backend.Domains(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Domain, 0, len(known))
	for _, d := range known {
		out = append(out, d.withoutNulls())
	}
	slices.SortFunc(out, func(a, b Domain) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// withoutNulls makes arrays empty rather than null in JSON.
func (d Domain) withoutNulls() Domain {
	for _, list := range []*[]string{&d.Ignored, &d.Browsed} {
		if *list == nil {
			*list = []string{}
		}
	}
	if d.Entries == nil {
		d.Entries = []DomainEntry{}
	}
	return d
}

// domain returns the present state of a search domain.
func (s *Server) domain(ctx context.Context, name string) (Domain, error) {
	known, err := s.listDomains(ctx)
	if err != nil {
		return Domain{}, err
	}
	if d, ok := FindDomain(known, name); ok {
		return d, nil
	}
	return Domain{}, &Error{Kind: ErrNotFound, Message: fmt.Sprintf("%q is not a search domain", text.Excerpt(name)), Advice: "liqo-agent domains list"}
}

// FindDomain returns the domain of that name, written as people write it.
func FindDomain(known []Domain, name string) (Domain, bool) {
	checked, err := checkDomain(DomainOptions{Name: name})
	i := slices.IndexFunc(known, func(d Domain) bool { return err == nil && d.Name == checked.Name })
	if i < 0 {
		return Domain{}, false
	}
	return known[i], true
}

func (s *Server) addDomain(r *http.Request) (any, error) {
	var body domainBody
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
			return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s=%d: want 1 to 86400, or 0 for the default", interval.name, interval.seconds)}
		}
		*interval.to = time.Duration(interval.seconds) * time.Second
	}
	named := opts.Name
	opts.Name, opts.By = r.PathValue("name"), by(r.Context())
	opts, err := checkDomain(opts)
	if err != nil {
		return nil, err
	}
	if named != "" && named != opts.Name && named != r.PathValue("name") {
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the body is about %q, the path about %q", text.Excerpt(named), opts.Name)}
	}
	if err := s.cfg.Backend.AddDomain(r.Context(), opts); err != nil {
		return nil, err
	}
	return s.domain(r.Context(), opts.Name)
}

// checkDomain validates opts and brings them into the form of the configuration file.
// Intervals that are 0 stay 0.
func checkDomain(opts DomainOptions) (DomainOptions, error) {
	d, err := config.CheckSearchDomain(config.SearchDomain{Domain: opts.Name, Server: opts.Server, MinInterval: opts.MinInterval, MaxInterval: opts.MaxInterval})
	if err != nil {
		return DomainOptions{}, &Error{Kind: ErrInvalid, Cause: err, Message: "search domain: " + err.Error(), Advice: "liqo-agent domains add --help"}
	}
	opts.Name, opts.Server = d.Domain, d.Server
	return opts, nil
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

// Domains returns the search domains, by name.
func (c *Client) Domains(ctx context.Context) ([]Domain, error) {
	var out []Domain
	return out, c.call(ctx, http.MethodGet, "/v1/domains", nil, &out)
}

// AddDomain adds a search domain, or changes one that was added with it. It returns the
// domain without waiting for the first query. Intervals are sent in seconds; opts.By is
// not sent.
func (c *Client) AddDomain(ctx context.Context, opts DomainOptions) (Domain, error) {
	var out Domain
	return out, c.call(ctx, http.MethodPut, domainPath(opts.Name), domainBody{DomainOptions: opts,
		MinIntervalSeconds: int64(opts.MinInterval / time.Second), MaxIntervalSeconds: int64(opts.MaxInterval / time.Second)}, &out)
}

// RemoveDomain removes a search domain that was added with AddDomain.
func (c *Client) RemoveDomain(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, domainPath(name), nil, nil)
}

// AskDomain queries a search domain now. It does not wait for the result.
func (c *Client) AskDomain(ctx context.Context, name string) (Domain, error) {
	var out Domain
	return out, c.call(ctx, http.MethodPost, domainPath(name)+"/ask", nil, &out)
}

func domainPath(name string) string { return "/v1/domains/" + url.PathEscape(name) }
