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

// policySource builds the policy for decisions about peers, from the configuration with
// its fleet CAs, the search domains, and the networks that the box is in.
type policySource struct {
	loaded   func() *config.Loaded
	domains  *domains.Set
	networks *networks

	mu         sync.Mutex
	configured decisions.Policy
}

// use takes the trust settings of a configuration into use.
func (p *policySource) use(cfg config.Config, fleetCAs []*x509.Certificate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configured = decisions.Policy{
		Accept: cfg.Trust.Accept, AllowEmptyToken: cfg.Trust.AllowEmptyToken, Fleet: fleetCAs,
		Autojoin: cfg.Discovery.Autojoin, AutojoinUntrusted: cfg.Discovery.AutojoinUntrusted,
		Static: cfg.Peers,
	}
}

// policy returns the present policy.
func (p *policySource) policy() decisions.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.configured
	out.AutojoinSet = p.loaded().Sources["discovery.autojoin"] != config.SourceDefault
	out.Domains, out.Strange = p.domains.Autojoins(), p.networks.strange()
	out.Search = p.domains.Names()
	return out
}

// policyApplier passes the present policy to the decision store.
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

// openness returns the setting that admits any cluster, "" for none.
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
