package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"liqo.io/agent/peer"
)

// sharing serves /v1/adverts: what other clusters offer.
func (s *Server) sharing() map[string]handle {
	return map[string]handle{
		"GET /v1/adverts":               s.adverts,
		"GET /v1/adverts/{ref}":         s.advert,
		"POST /v1/adverts/{ref}/accept": func(r *http.Request) (any, error) { return s.decideAdvert(r, true) },
		"POST /v1/adverts/{ref}/refuse": func(r *http.Request) (any, error) { return s.decideAdvert(r, false) },
	}
}

func (s *Server) adverts(r *http.Request) (any, error) { return s.listAdverts(r.Context()) }

// listAdverts returns what other clusters offer, in the order of the backend. It is
// never nil.
func (s *Server) listAdverts(ctx context.Context) ([]Advert, error) {
	known, err := s.cfg.Backend.Adverts(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Advert, 0, len(known))
	for _, a := range known {
		out = append(out, a.withoutNulls())
	}
	return out, nil
}

func (s *Server) advert(r *http.Request) (any, error) {
	known, err := s.listAdverts(r.Context())
	if err != nil {
		return nil, err
	}
	return s.findAdvert(r, known)
}

// findAdvert returns the offer of the cluster that the path names. It resolves the name
// among the peers as well, to tell a cluster that offers nothing from an unknown one.
func (s *Server) findAdvert(r *http.Request, known []Advert) (Advert, error) {
	peers, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return Advert{}, err
	}
	p, err := resolve(withProviders(peers, known), r.PathValue("ref"), verified)
	if err != nil {
		return Advert{}, err
	}
	for _, a := range known {
		if a.ID == p.ID {
			return a, nil
		}
	}
	return Advert{}, noAdvert(p.Label())
}

func noAdvert(label string) error {
	return &Error{Kind: ErrNotFound, Message: fmt.Sprintf("%s offers nothing to this cluster", label), Advice: "liqo-agent adverts list"}
}

// withProviders returns the peers, and the clusters with offers that are not among them.
func withProviders(peers []Peer, adverts []Advert) []Peer {
	known := make(map[string]bool, len(peers))
	for _, p := range peers {
		known[p.ID] = true
	}
	out := peers[:len(peers):len(peers)]
	for _, a := range adverts {
		if !known[a.ID] {
			out = append(out, Peer{ID: a.ID, Name: a.Name})
		}
	}
	return out
}

func (s *Server) decideAdvert(r *http.Request, accept bool) (any, error) {
	known, err := s.listAdverts(r.Context())
	if err != nil {
		return nil, err
	}
	a, err := s.findAdvert(r, known)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.DecideAdvert(r.Context(), peer.ClusterID(a.ID), accept, by(r.Context())); err != nil {
		return nil, err
	}
	if known, err = s.listAdverts(r.Context()); err != nil {
		return nil, err
	}
	for _, now := range known {
		if now.ID == a.ID {
			return now, nil
		}
	}
	return nil, noAdvert(a.Name) // it was withdrawn at this moment
}

// Adverts returns what other clusters offer, the oldest first.
func (c *Client) Adverts(ctx context.Context) ([]Advert, error) {
	var out []Advert
	return out, c.call(ctx, http.MethodGet, "/v1/adverts", nil, &out)
}

// Advert returns what the peer offers that ref names, as Resolve understands it.
func (c *Client) Advert(ctx context.Context, ref string) (Advert, error) {
	var out Advert
	return out, c.call(ctx, http.MethodGet, advertPath(ref), nil, &out)
}

// DecideAdvert accepts or refuses what the peer offers that ref names, and returns
// it as it is then; the node that follows from it is only beginning.
func (c *Client) DecideAdvert(ctx context.Context, ref string, accept bool) (Advert, error) {
	verb := "/refuse"
	if accept {
		verb = "/accept"
	}
	var out Advert
	return out, c.call(ctx, http.MethodPost, advertPath(ref)+verb, nil, &out)
}

func advertPath(ref string) string { return "/v1/adverts/" + url.PathEscape(ref) }
