package policy

import (
	"context"
	"crypto/x509"
	"log/slog"
	"sync"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/liqo/engine"
)

// Domains has the search domains.
type Domains interface {
	// Autojoins returns by search domain whether its clusters are joined.
	Autojoins() map[string]bool
	Names() []string
}

// Source builds the present policy from its inputs. It is safe for concurrent use.
type Source struct {
	loaded     func() *config.Loaded
	domains    Domains
	noAutojoin func() map[string]bool

	applying sync.Mutex // one Apply at a time, so that the newest policy is stored last

	mu         sync.Mutex
	configured decisions.Policy
}

// NewSource returns a Source. loaded returns the configuration in use, noAutojoin the
// links in networks without autojoin.
func NewSource(loaded func() *config.Loaded, domains Domains, noAutojoin func() map[string]bool) *Source {
	return &Source{loaded: loaded, domains: domains, noAutojoin: noAutojoin}
}

// Use takes the trust settings of a configuration into use, with its fleet CAs; nil if it names none, or these cannot be used.
func (s *Source) Use(cfg config.Config, fleetCAs []*x509.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configured = decisions.Policy{
		Accept: cfg.Trust.Accept, AllowEmptyToken: cfg.Trust.AllowEmptyToken, Fleet: fleetCAs, FleetUnknown: cfg.Trust.FleetCA != "" && fleetCAs == nil,
		Autojoin: cfg.Discovery.Autojoin, AutojoinUntrusted: cfg.Discovery.AutojoinUntrusted,
		Static: cfg.Peers, ByLiqo: engine.Setting(cfg.Peering.Engine) != engine.OnlyBuiltin,
	}
}

// Policy returns the present policy.
func (s *Source) Policy() decisions.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.configured
	out.AutojoinSet = s.loaded().Sources["discovery.autojoin"] != config.SourceDefault
	out.Domains, out.Strange = s.domains.Autojoins(), s.noAutojoin()
	out.Search = s.domains.Names()
	return out
}

// Apply passes the present policy to the decision store, and logs an error.
func (s *Source) Apply(ctx context.Context, d *decisions.Store, logger *slog.Logger) {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := d.SetPolicy(ctx, s.Policy()); err != nil && ctx.Err() == nil {
		logger.Error("cannot store the trust settings of the configuration", "error", err)
	}
}

// Openness returns the setting that admits any cluster, "" for none.
func Openness(cfg config.Config) string {
	switch {
	case cfg.Trust.AllowEmptyToken:
		return "trust.allow_empty_token is on"
	case cfg.Trust.Accept == "all":
		return `trust.accept is "all"`
	case cfg.Discovery.AutojoinUntrusted:
		return "discovery.autojoin_untrusted is on"
	}
	return ""
}
