package control

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	maxNote  = 256  // bytes
	maxToken = 2048 // bytes; real ones are a tenth of that
	maxNames = 64   // in a certificate signing request
	// MinInviteTTL and MaxInviteTTL bound how long an invite is valid.
	MinInviteTTL = time.Minute
	MaxInviteTTL = 30 * 24 * time.Hour
)

// The bodies of requests.
type (
	connectBody struct {
		Peer        string `json:"peer"`
		URL         string `json:"url"`
		Token       string `json:"token"`
		Fingerprint string `json:"fingerprint"`
		Once        bool   `json:"once"`
	}
	disconnectBody struct {
		Incoming bool `json:"incoming"`
	}
	confirmBody struct {
		Fingerprint string `json:"fingerprint"`
	}
	inviteBody struct {
		TTLSeconds int64  `json:"ttlSeconds"`
		Note       string `json:"note"`
		URL        string `json:"url"`
	}
	csrBody struct {
		Names []string `json:"names"`
	}
	csrAnswer struct {
		CSR string `json:"csr"`
	}
)

// decisions serves the decisions of people about peers, invites and the key.
func (s *Server) decisions() map[string]handle {
	return map[string]handle{
		"POST /v1/connect":                  s.connect,
		"POST /v1/peers/{ref}/disconnect":   s.disconnect,
		"POST /v1/peers/{ref}/accept":       s.accept,
		"POST /v1/peers/{ref}/reject":       s.reject,
		"POST /v1/peers/{ref}/block":        s.block,
		"POST /v1/peers/{ref}/unblock":      s.unblock,
		"PUT /v1/peers/{ref}/trust":         s.trust,
		"DELETE /v1/peers/{ref}/trust":      s.distrust,
		"PATCH /v1/peers/{ref}/preferences": s.set,
		"DELETE /v1/peers/{ref}":            s.forget,
		"GET /v1/requests":                  s.requests,
		"GET /v1/invites":                   s.invites,
		"POST /v1/invites":                  s.invite,
		"DELETE /v1/invites/{id}":           s.revokeInvite,
		"GET /v1/key":                       s.key,
		"POST /v1/key/rotate":               s.rotateKey,
		"POST /v1/key/csr":                  s.csr,
	}
}

// find resolves ref among the peers and the clusters that only asked for access.
func (s *Server) find(r *http.Request, ref string, prefer func(Peer) bool) (Peer, error) {
	known, err := s.cfg.Backend.Peers(r.Context())
	if err != nil {
		return Peer{}, err
	}
	asked, err := s.cfg.Backend.Requests(r.Context())
	if err != nil {
		return Peer{}, err
	}
	return resolve(withAskers(known, asked), ref, prefer)
}

// decided returns the peer after a decision about it. One that was not among
// the peers before may not be there yet.
func (s *Server) decided(r *http.Request, before Peer) (any, error) {
	p, err := s.cfg.Backend.Peer(r.Context(), peer.ClusterID(before.ID))
	if errors.Is(err, ErrNotFound) {
		return before.withoutNulls(), nil
	}
	return p.withoutNulls(), err
}

func (s *Server) connect(r *http.Request) (any, error) {
	var body connectBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	opts := ConnectOptions{Token: body.Token, Once: body.Once, By: by(r.Context())}
	var err error
	if opts.Fingerprint, err = parseFingerprint(body.Fingerprint); err != nil {
		return nil, err
	}
	if opts.URL, err = CheckURL(body.URL); err != nil {
		return nil, err
	}
	switch {
	case body.Peer == "" && body.URL == "" && body.Token == "":
		return nil, &Error{Kind: ErrInvalid, Message: "nothing to connect to: name a peer, a URL or a token"}
	case len(body.Token) > maxToken:
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the token is %d bytes long: it is not from liqo-agent invite", len(body.Token))}
	}
	if body.Peer != "" {
		p, err := s.find(r, body.Peer, verified)
		if err != nil {
			return nil, err
		}
		opts.ID = peer.ClusterID(p.ID)
	}
	id, err := s.cfg.Backend.Connect(r.Context(), opts)
	if err != nil {
		return nil, err
	}
	return s.decided(r, Peer{ID: string(id)})
}

func (s *Server) disconnect(r *http.Request) (any, error) {
	var body disconnectBody
	if err := decodeOptional(r, &body); err != nil {
		return nil, err
	}
	p, err := s.find(r, r.PathValue("ref"), verified)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Disconnect(r.Context(), peer.ClusterID(p.ID), body.Incoming, by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) accept(r *http.Request) (any, error) {
	p, fingerprint, err := s.confirmed(r)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Accept(r.Context(), peer.ClusterID(p.ID), fingerprint, by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) trust(r *http.Request) (any, error) {
	p, fingerprint, err := s.confirmed(r)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Trust(r.Context(), peer.ClusterID(p.ID), fingerprint, by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

// confirmed reads a decision about the key of a peer: the peer, and the fingerprint
// that the person confirmed, zero for none.
func (s *Server) confirmed(r *http.Request) (Peer, peer.Fingerprint, error) {
	var body confirmBody
	if err := decodeOptional(r, &body); err != nil {
		return Peer{}, peer.Fingerprint{}, err
	}
	fingerprint, err := parseFingerprint(body.Fingerprint)
	if err != nil {
		return Peer{}, fingerprint, err
	}
	p, err := s.find(r, r.PathValue("ref"), decidable)
	return p, fingerprint, err
}

func (s *Server) reject(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), decidable)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Reject(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) block(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), decidable)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Block(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) unblock(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), verified)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Unblock(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) distrust(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), decidable)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Distrust(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) set(r *http.Request) (any, error) {
	var patch PreferencesPatch
	if err := decode(r, &patch); err != nil {
		return nil, err
	}
	if err := patch.check(); err != nil {
		return nil, err
	}
	p, err := s.find(r, r.PathValue("ref"), verified)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Set(r.Context(), peer.ClusterID(p.ID), patch, by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

// check validates the values, and brings the URL into the form in which it is stored.
func (p *PreferencesPatch) check() error {
	for name, c := range map[string]*Choice{"autoConnect": p.AutoConnect, "autoAccept": p.AutoAccept} {
		if c != nil && *c != Yes && *c != No && *c != Undecided {
			return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s %q: want yes, no or undecided", name, *c)}
		}
	}
	if p.Note != nil {
		if err := checkNote(*p.Note); err != nil {
			return err
		}
	}
	if p.URL != nil {
		u, err := CheckURL(*p.URL)
		if err != nil {
			return err
		}
		p.URL = &u
	}
	return nil
}

func (s *Server) forget(r *http.Request) (any, error) {
	p, err := s.find(r, r.PathValue("ref"), verified)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Backend.Forget(r.Context(), peer.ClusterID(p.ID), by(r.Context())); err != nil {
		return nil, err
	}
	return s.decided(r, p)
}

func (s *Server) requests(r *http.Request) (any, error) {
	asked, err := s.cfg.Backend.Requests(r.Context())
	return append(make([]Request, 0, len(asked)), asked...), err
}

func (s *Server) invites(r *http.Request) (any, error) {
	made, err := s.cfg.Backend.Invites(r.Context())
	return append(make([]Invite, 0, len(made)), made...), err
}

func (s *Server) invite(r *http.Request) (any, error) {
	var body inviteBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	// Compared as seconds: a duration would overflow.
	if body.TTLSeconds < int64(MinInviteTTL/time.Second) || body.TTLSeconds > int64(MaxInviteTTL/time.Second) {
		return nil, &Error{Kind: ErrInvalid, Message: "an invite is valid for at least one minute and at most 30 days"}
	}
	if err := checkNote(body.Note); err != nil {
		return nil, err
	}
	u, err := CheckURL(body.URL)
	if err != nil {
		return nil, err
	}
	return s.cfg.Backend.Invite(r.Context(), InviteOptions{TTL: time.Duration(body.TTLSeconds) * time.Second, Note: body.Note, URL: u, By: by(r.Context())})
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

func (s *Server) key(r *http.Request) (any, error) { return s.cfg.Backend.Key(r.Context()) }

func (s *Server) rotateKey(r *http.Request) (any, error) {
	return s.cfg.Backend.RotateKey(r.Context(), by(r.Context()))
}

func (s *Server) csr(r *http.Request) (any, error) {
	var body csrBody
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	switch n := len(body.Names); {
	case n == 0:
		return nil, &Error{Kind: ErrInvalid, Message: "no name was given for the certificate"}
	case n > maxNames:
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%d names for one certificate: at most %d are allowed", n, maxNames)}
	}
	csr, err := s.cfg.Backend.CSR(r.Context(), body.Names)
	return csrAnswer{CSR: csr}, err
}

// parseFingerprint reads an optional fingerprint.
func parseFingerprint(s string) (peer.Fingerprint, error) {
	if s == "" {
		return peer.Fingerprint{}, nil
	}
	fp, err := peer.ParseFingerprint(s)
	if err != nil {
		return fp, &Error{Kind: ErrInvalid, Cause: err, Message: err.Error(), Advice: "copy it from the output of liqo-agent key show"}
	}
	return fp, nil
}

// CheckURL returns the URL of an endpoint in the form in which it is kept:
// https://host or https://host:port. "" stays so. The error wraps ErrInvalid.
func CheckURL(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := peer.ParseURL(s)
	if err != nil {
		return "", &Error{Kind: ErrInvalid, Message: fmt.Sprintf("URL %q: want https://HOST:PORT; %v", text.Excerpt(s), err)}
	}
	return u.String(), nil
}

func checkNote(s string) error {
	switch {
	case len(s) > maxNote:
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the note is %d bytes long, at most %d are allowed", len(s), maxNote)}
	case !text.Printable(s):
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("note %q contains characters that cannot be printed", s)}
	}
	return nil
}
