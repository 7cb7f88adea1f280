package socket

import (
	"net/http"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// advertRoutes serves /v1/adverts: what other clusters offer.
func (s *Server) advertRoutes() map[string]handle {
	return map[string]handle{
		"GET /v1/adverts":               func(r *http.Request) (any, error) { return s.cfg.Backend.Adverts(r.Context()) },
		"GET /v1/adverts/{ref}":         func(r *http.Request) (any, error) { return s.findAdvert(r) },
		"POST /v1/adverts/{ref}/accept": func(r *http.Request) (any, error) { return s.decideAdvert(r, true) },
		"POST /v1/adverts/{ref}/refuse": func(r *http.Request) (any, error) { return s.decideAdvert(r, false) },
	}
}

// findAdvert returns the offer of the cluster that the path names. It resolves the name
// among the peers as well, to tell a cluster that offers nothing from an unknown one.
func (s *Server) findAdvert(r *http.Request) (control.Advert, error) {
	known, err := s.cfg.Backend.Adverts(r.Context())
	if err != nil {
		return control.Advert{}, err
	}
	peers, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return control.Advert{}, err
	}
	providers := make([]control.Peer, 0, len(known))
	for _, a := range known {
		providers = append(providers, control.Peer{ID: a.ID, Name: a.Name})
	}
	p, err := control.Resolve(union(peers, providers), r.PathValue("ref"))
	if err != nil {
		return control.Advert{}, err
	}
	return advertOf(known, p.ID, p.Label())
}

// advertOf returns the offer of a cluster. label is what people call it.
func advertOf(known []control.Advert, id, label string) (control.Advert, error) {
	for _, a := range known {
		if a.ID == id {
			return a, nil
		}
	}
	return control.Advert{}, &control.Error{Kind: control.ErrNotFound, Message: label + " offers nothing to this cluster", Advice: "liqo-agent adverts list"}
}

func (s *Server) decideAdvert(r *http.Request, accept bool) (any, error) {
	a, err := s.findAdvert(r)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.DecideAdvert(r.Context(), peer.ClusterID(a.ID), accept, by(r.Context())); err != nil {
		return nil, err
	}
	known, err := s.cfg.Backend.Adverts(r.Context())
	if err != nil {
		return nil, err
	}
	return advertOf(known, a.ID, a.Name) // it may have been withdrawn at this moment
}
