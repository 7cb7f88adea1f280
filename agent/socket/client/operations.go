package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"liqo.io/agent/agent/control"
)

// Adverts returns what other clusters offer, the oldest first.
func (c *Client) Adverts(ctx context.Context) ([]control.Advert, error) {
	return call[[]control.Advert](ctx, c, http.MethodGet, "/v1/adverts", nil)
}

// Advert returns what the peer offers that ref names, as Resolve understands it.
func (c *Client) Advert(ctx context.Context, ref string) (control.Advert, error) {
	return call[control.Advert](ctx, c, http.MethodGet, advertPath(ref), nil)
}

// DecideAdvert accepts or refuses what the peer offers that ref names, and returns
// it as it is then; the node that follows from it is only beginning.
func (c *Client) DecideAdvert(ctx context.Context, ref string, accept bool) (control.Advert, error) {
	verb := "/refuse"
	if accept {
		verb = "/accept"
	}
	return call[control.Advert](ctx, c, http.MethodPost, advertPath(ref)+verb, nil)
}

func advertPath(ref string) string { return "/v1/adverts/" + url.PathEscape(ref) }

// Network returns the network between the pods of this cluster and those of its peers.
func (c *Client) Network(ctx context.Context) (control.Network, error) {
	return call[control.Network](ctx, c, http.MethodGet, "/v1/network", nil)
}

// Storage returns what claims keep at other clusters, and others' claims here.
func (c *Client) Storage(ctx context.Context) (control.Storage, error) {
	return call[control.Storage](ctx, c, http.MethodGet, "/v1/storage", nil)
}

// ReclaimStorage removes the claims that are only kept of the cluster with that ID.
func (c *Client) ReclaimStorage(ctx context.Context, id string) (control.Reclaimed, error) {
	return call[control.Reclaimed](ctx, c, http.MethodPost, "/v1/storage/"+url.PathEscape(id)+"/reclaim", nil)
}

// ProbeNetwork measures the way to a peer's network and back, once.
func (c *Client) ProbeNetwork(ctx context.Context, ref string) (control.NetworkProbe, error) {
	return call[control.NetworkProbe](ctx, c, http.MethodPost, "/v1/diagnose/network/"+url.PathEscape(ref), nil)
}

// Reach has the agent ask its trusted peers to call this cluster back, and returns
// what they found.
func (c *Client) Reach(ctx context.Context) ([]control.Reach, error) {
	return call[[]control.Reach](ctx, c, http.MethodPost, "/v1/diagnose/reach", nil)
}

// Fetch returns the raw body that the agent serves at a path, such as "/metrics". A body
// of more than most bytes is an error.
func (c *Client) Fetch(ctx context.Context, path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, c.unread(path, err)
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("the agent's answer to %s is longer than %d bytes", path, most)
	}
	return body, nil
}

// Domains returns the search domains, by name.
func (c *Client) Domains(ctx context.Context) ([]control.Domain, error) {
	return call[[]control.Domain](ctx, c, http.MethodGet, "/v1/domains", nil)
}

// AddDomain adds a search domain, or changes one that was added with it. It returns the
// domain without waiting for the first query. Intervals are sent in seconds; opts.By is
// not sent.
func (c *Client) AddDomain(ctx context.Context, opts control.DomainOptions) (control.Domain, error) {
	return call[control.Domain](ctx, c, http.MethodPut, domainPath(opts.Name), control.DomainBody{DomainOptions: opts,
		MinIntervalSeconds: int64(opts.MinInterval / time.Second), MaxIntervalSeconds: int64(opts.MaxInterval / time.Second)})
}

// RemoveDomain removes a search domain that was added with AddDomain.
func (c *Client) RemoveDomain(ctx context.Context, name string) error {
	return discard(ctx, c, http.MethodDelete, domainPath(name), nil)
}

// AskDomain queries a search domain now. It does not wait for the result.
func (c *Client) AskDomain(ctx context.Context, name string) (control.Domain, error) {
	return call[control.Domain](ctx, c, http.MethodPost, domainPath(name)+"/ask", nil)
}

func domainPath(name string) string { return "/v1/domains/" + url.PathEscape(name) }

// PlanReset returns what a reset would do.
func (c *Client) PlanReset(ctx context.Context, opts control.ResetOptions) (control.ResetPlan, error) {
	q := url.Values{}
	for name, set := range map[string]bool{"identity": opts.Identity, "all": opts.All, "crds": opts.CRDs} {
		if set {
			q.Set(name, "1")
		}
	}
	return call[control.ResetPlan](ctx, c, http.MethodGet, "/v1/reset/plan?"+q.Encode(), nil)
}

// BeginReset begins a reset, which continues by itself.
func (c *Client) BeginReset(ctx context.Context, opts control.ResetOptions) (control.Reset, error) {
	return call[control.Reset](ctx, c, http.MethodPost, "/v1/reset", opts)
}

// ResetState returns the progress of the reset.
func (c *Client) ResetState(ctx context.Context) (control.Reset, error) {
	return call[control.Reset](ctx, c, http.MethodGet, "/v1/reset", nil)
}

// Reload reloads the configuration of the agent, and returns when it is in effect. If the file has faults, the error
// wraps ErrInvalid.
func (c *Client) Reload(ctx context.Context) (control.Reload, error) {
	out, err := call[control.Reload](ctx, c, http.MethodPost, "/v1/reload", nil)
	if err != nil || !out.Rebuilding {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	ticker := time.NewTicker(rebuildPoll)
	defer ticker.Stop()
	// The connection is to the server that ends.
	c.Close()
	for {
		now, err := call[control.Generation](ctx, c, http.MethodGet, "/v1/reload", nil)
		if err == nil && now.Generation > out.Generation {
			out.Rebuilding, out.Generation = false, now.Generation
			return out, nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return out, c.explain(ctx.Err())
			}
			return out, &control.Error{Cause: err, Message: fmt.Sprintf("the agent accepted the new settings, but did not come back within %s", rebuildTimeout),
				Advice: "check its log, for example: journalctl -u liqo-agent"}
		case <-ticker.C:
		}
	}
}

const (
	// rebuildTimeout bounds how long a client waits for an agent that rebuilds its parts.
	rebuildTimeout = time.Minute
	// rebuildPoll is the interval of its requests meanwhile.
	rebuildPoll = 100 * time.Millisecond
)
