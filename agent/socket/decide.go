package socket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const (
	maxToken = 2048 // bytes; real ones are a tenth of that
	maxNames = 64   // in a certificate signing request
)

// decisionRoutes serves the decisions of people about peers, invites and the key.
func (s *Server) decisionRoutes() map[string]handle {
	b := s.cfg.Backend
	return map[string]handle{
		"POST /v1/connect":                  s.connect,
		"POST /v1/peers/{ref}/disconnect":   s.disconnect,
		"POST /v1/peers/{ref}/accept":       s.confirm(b.Accept),
		"POST /v1/peers/{ref}/reject":       s.decide(control.ResolveProven, b.Reject),
		"POST /v1/peers/{ref}/block":        s.decide(control.ResolveProven, b.Block),
		"POST /v1/peers/{ref}/unblock":      s.decide(control.Resolve, b.Unblock),
		"PUT /v1/peers/{ref}/trust":         s.confirm(b.Trust),
		"DELETE /v1/peers/{ref}/trust":      s.decide(control.ResolveProven, b.Distrust),
		"PATCH /v1/peers/{ref}/preferences": s.set,
		"DELETE /v1/peers/{ref}":            s.decide(control.Resolve, b.Forget),
		"POST /v1/storage/{id}/reclaim": func(r *http.Request) (any, error) {
			id, err := peer.ParseClusterID(r.PathValue("id"))
			if err != nil {
				return nil, &control.Error{Kind: control.ErrInvalid, Message: err.Error()}
			}
			return b.ReclaimStorage(r.Context(), id)
		},
		"GET /v1/requests":        func(r *http.Request) (any, error) { return b.Requests(r.Context()) },
		"GET /v1/invites":         func(r *http.Request) (any, error) { return b.Invites(r.Context()) },
		"POST /v1/invites":        s.invite,
		"DELETE /v1/invites/{id}": s.revokeInvite,
		"GET /v1/key":             func(r *http.Request) (any, error) { return b.Key(r.Context()) },
		"POST /v1/key/rotate":     func(r *http.Request) (any, error) { return b.RotateKey(r.Context(), by(r.Context())) },
		"POST /v1/key/csr":        s.csr,
	}
}

// resolver finds the peer that a person named.
type resolver func(known []control.Peer, ref string) (control.Peer, error)

// decide handles a decision about the peer in the path.
func (s *Server) decide(resolve resolver, decide func(ctx context.Context, id peer.ClusterID, by string) error) handle {
	return func(r *http.Request) (any, error) {
		p, err := s.find(r, r.PathValue("ref"), resolve)
		if err != nil {
			return nil, err
		}
		if err := decide(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
			return nil, err
		}
		return s.decided(r, p)
	}
}

// confirm handles a decision about the key of the peer in the path. fingerprint is the
// key that the person confirmed, zero for none.
func (s *Server) confirm(decide func(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error) handle {
	return func(r *http.Request) (any, error) {
		var body control.ConfirmBody
		if err := decodeOptional(r, &body); err != nil {
			return nil, err
		}
		fingerprint, err := parseFingerprint(body.Fingerprint)
		if err != nil {
			return nil, err
		}
		return s.decide(control.ResolveProven, func(ctx context.Context, id peer.ClusterID, by string) error {
			return decide(ctx, id, fingerprint, by)
		})(r)
	}
}

// find resolves ref among the peers and the clusters that only asked for access.
func (s *Server) find(r *http.Request, ref string, resolve resolver) (control.Peer, error) {
	known, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return control.Peer{}, err
	}
	asked, err := s.cfg.Backend.Requests(r.Context())
	if err != nil {
		return control.Peer{}, err
	}
	askers := make([]control.Peer, 0, len(asked))
	for _, r := range asked {
		askers = append(askers, asker(r))
	}
	return resolve(union(known, askers), ref)
}

// decided returns the peer after a decision about it. A new one may not be there yet.
func (s *Server) decided(r *http.Request, before control.Peer) (any, error) {
	p, err := s.cfg.Backend.Peer(r.Context(), peer.ClusterID(before.ID))
	if errors.Is(err, control.ErrNotFound) {
		return before.Complete(), nil
	}
	return p.Complete(), err
}

func (s *Server) connect(r *http.Request) (any, error) {
	var body control.ConnectBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	opts := control.ConnectOptions{Token: body.Token, Once: body.Once, Asks: body.Asks, By: by(r.Context())}
	err := opts.Asks.Check()
	if err != nil {
		return nil, err
	}
	if opts.Fingerprint, err = parseFingerprint(body.Fingerprint); err != nil {
		return nil, err
	}
	if opts.URL, err = control.CheckURL(body.URL); err != nil {
		return nil, err
	}
	switch {
	case body.Peer == "" && body.URL == "" && body.Token == "":
		return nil, &control.Error{Kind: control.ErrInvalid, Message: "nothing to connect to: name a peer, a URL or a token"}
	case len(body.Token) > maxToken:
		return nil, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("the token is %d bytes long: it is not from liqo-agent invite", len(body.Token))}
	}
	if body.Peer != "" {
		p, err := s.find(r, body.Peer, control.Resolve)
		if err != nil {
			return nil, err
		}
		opts.ID = peer.ClusterID(p.ID)
	}
	id, err := s.cfg.Backend.Connect(r.Context(), opts)
	if err != nil {
		return nil, err
	}
	return s.decided(r, control.Peer{ID: string(id)})
}

func (s *Server) disconnect(r *http.Request) (any, error) {
	var body control.DisconnectBody
	if err := decodeOptional(r, &body); err != nil {
		return nil, err
	}
	return s.decide(control.Resolve, func(ctx context.Context, id peer.ClusterID, by string) error {
		return s.cfg.Backend.Disconnect(ctx, id, body.Incoming, by)
	})(r)
}

func (s *Server) set(r *http.Request) (any, error) {
	var patch control.PreferencesPatch
	if err := decode(r, &patch); err != nil {
		return nil, err
	}
	if err := checkPatch(&patch); err != nil {
		return nil, err
	}
	return s.decide(control.Resolve, func(ctx context.Context, id peer.ClusterID, by string) error {
		return s.cfg.Backend.Set(ctx, id, patch, by)
	})(r)
}

// checkPatch validates the values, and brings URL and amounts into the form in which they are stored.
func checkPatch(p *control.PreferencesPatch) error {
	for name, c := range map[string]*control.Choice{"autoConnect": p.AutoConnect, "autoAccept": p.AutoAccept} {
		if c != nil && *c != control.Yes && *c != control.No && *c != control.Undecided {
			return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("%s %q: want yes, no or undecided", name, *c)}
		}
	}
	if err := p.Check(); err != nil {
		return err
	}
	if p.Note != nil {
		if err := control.CheckNote(*p.Note); err != nil {
			return err
		}
	}
	if p.URL != nil {
		u, err := control.CheckURL(*p.URL)
		if err != nil {
			return err
		}
		p.URL = &u
	}
	return nil
}

func (s *Server) invite(r *http.Request) (any, error) {
	var body control.InviteBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	// Compared as seconds: a duration would overflow.
	if body.TTLSeconds < int64(control.MinInviteTTL/time.Second) || body.TTLSeconds > int64(control.MaxInviteTTL/time.Second) {
		return nil, &control.Error{Kind: control.ErrInvalid, Message: "an invite is valid for at least one minute and at most 30 days"}
	}
	if err := control.CheckNote(body.Note); err != nil {
		return nil, err
	}
	u, err := control.CheckURL(body.URL)
	if err != nil {
		return nil, err
	}
	return s.cfg.Backend.Invite(r.Context(), control.InviteOptions{TTL: time.Duration(body.TTLSeconds) * time.Second, Note: body.Note, URL: u, By: by(r.Context())})
}

func (s *Server) revokeInvite(r *http.Request) (any, error) {
	made, err := s.cfg.Backend.Invites(r.Context())
	if err != nil {
		return nil, err
	}
	id, err := resolveInvite(made, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.cfg.Backend.RevokeInvite(r.Context(), id, by(r.Context()))
}

func (s *Server) csr(r *http.Request) (any, error) {
	var body control.CSRBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	switch n := len(body.Names); {
	case n == 0:
		return nil, &control.Error{Kind: control.ErrInvalid, Message: "no name was given for the certificate"}
	case n > maxNames:
		return nil, &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("%d names for one certificate: at most %d are allowed", n, maxNames)}
	}
	csr, err := s.cfg.Backend.CSR(r.Context(), body.Names)
	return control.CSRAnswer{CSR: csr}, err
}

// parseFingerprint reads an optional fingerprint.
func parseFingerprint(s string) (peer.Fingerprint, error) {
	if s == "" {
		return peer.Fingerprint{}, nil
	}
	fp, err := peer.ParseFingerprint(s)
	if err != nil {
		return fp, &control.Error{Kind: control.ErrInvalid, Cause: err, Message: err.Error(), Advice: "copy it from the output of liqo-agent key show"}
	}
	return fp, nil
}
