package agent

import (
	"context"
	"crypto/x509"
	"log/slog"
	"sync"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
)

// policySource is what decides about peers: the configuration with its fleet CAs, the
// search domains and where the box is.
type policySource struct {
	loaded   func() *config.Loaded
	domains  *domains.Set
	networks *networks

	mu         sync.Mutex
	configured decisions.Policy
}

// use takes in what a configuration says about trust.
func (p *policySource) use(cfg config.Config, fleetCAs []*x509.Certificate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configured = decisions.Policy{
		Accept: cfg.Trust.Accept, AllowEmptyToken: cfg.Trust.AllowEmptyToken, Fleet: fleetCAs,
		Autojoin: cfg.Discovery.Autojoin, AutojoinUntrusted: cfg.Discovery.AutojoinUntrusted,
		Static: cfg.Peers,
	}
}

// policy is what is so now.
func (p *policySource) policy() decisions.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.configured
	out.AutojoinSet = p.loaded().Sources["discovery.autojoin"] != config.SourceDefault
	out.Domains, out.Strange = p.domains.Autojoins(), p.networks.strange()
	out.Search = p.domains.Names()
	return out
}

// policyApplier has the decision store decide by what is so now.
type policyApplier struct {
	source    *policySource
	decisions *decisions.Store
	logger    *slog.Logger

	applying sync.Mutex // one at a time: else the older one of two might come last
}

func (p *policyApplier) apply(ctx context.Context) {
	p.applying.Lock()
	defer p.applying.Unlock()
	if err := p.decisions.SetPolicy(ctx, p.source.policy()); err != nil && ctx.Err() == nil {
		p.logger.Error("cannot store the trust settings of the configuration", "error", err)
	}
}

// openness says which settings let anybody in, "" for none.
func openness(cfg config.Config) string {
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
