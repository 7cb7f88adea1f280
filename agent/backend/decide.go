package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Connect implements socket.Backend.
func (b *Backend) Connect(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	switch {
	case opts.Token != "":
		return b.connectInvited(ctx, opts)
	case opts.URL != "":
		return b.connectURL(ctx, opts)
	}
	p, known := b.registry.Peer(opts.ID)
	pin := b.decisions.Pin(opts.ID)
	if !known && pin == nil {
		return "", notFound(opts.ID)
	}
	if err := b.confirm(ctx, shownPeer(opts.ID, p), pin, opts.Fingerprint, opts.By); err != nil {
		return "", err
	}
	if err := b.rememberAsks(ctx, opts.ID, opts); err != nil {
		return "", err
	}
	return opts.ID, b.decisions.Connect(ctx, opts.ID, opts.Once, opts.By)
}

// rememberAsks stores how much a person asks a peer for. It comes before the connection, so that the
// first request says it.
func (b *Backend) rememberAsks(ctx context.Context, id peer.ClusterID, opts control.ConnectOptions) error {
	return b.decisions.Set(ctx, id, func(p *state.Preferences) { setAsks(p, opts.Asks) }, opts.By)
}

func setAsks(p *state.Preferences, asks control.Asks) {
	if asks.CPU != nil {
		p.CPU = *asks.CPU
	}
	if asks.Memory != nil {
		p.Memory = *asks.Memory
	}
}

// connectInvited connects to the issuer of an invite. The invite contains the issuer's
// key, so nobody has to confirm it.
func (b *Backend) connectInvited(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	token, at, _ := strings.Cut(strings.TrimSpace(opts.Token), tokenURL)
	invite, err := trust.ParseInvite(token)
	switch {
	case err != nil:
		return "", &control.Error{Kind: control.ErrInvalid, Message: "the token cannot be used: " + err.Error(), Cause: err}
	case invite.Issuer == b.id:
		return "", &control.Error{Kind: control.ErrInvalid, Message: "this cluster created the token: use it on another one"}
	case opts.ID != "" && opts.ID != invite.Issuer:
		return "", &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("the token is from cluster %s, not from %s", invite.Issuer, opts.ID)}
	}
	where := opts.URL
	if where == "" && at != "" {
		where = "https://" + at
	}
	if where != "" {
		if _, err := b.identify(ctx, peer.Target{ID: invite.Issuer, Fingerprint: invite.Fingerprint, URL: where}); err != nil {
			return "", &control.Error{Kind: control.ErrUnavailable, Cause: err,
				Message: fmt.Sprintf("the issuer of the token does not answer at %s: %v", where, err),
				Advice:  "check the address; nothing was sent, so the token can still be used"}
		}
	} else if p, known := b.registry.Peer(invite.Issuer); !known || p.Phase == peer.PhaseLost {
		return "", &control.Error{Kind: control.ErrUnavailable,
			Message: fmt.Sprintf("the issuer of the token, cluster %s, has not been discovered here", invite.Issuer),
			Advice:  "add its address: liqo-agent peers connect --token TOKEN https://ADDRESS:6447"}
	}
	if err := b.rememberAsks(ctx, invite.Issuer, opts); err != nil {
		return "", err
	}
	if err := b.decisions.UseInvite(ctx, invite, opts.By); err != nil {
		return "", err
	}
	if err := b.adopt(ctx, invite.Issuer, invite.Fingerprint); err != nil {
		return "", err
	}
	return invite.Issuer, b.remember(ctx, invite.Issuer, where, opts.By)
}

// connectURL connects to the cluster that answers at a URL.
func (b *Backend) connectURL(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error) {
	res, err := b.identify(ctx, peer.Target{ID: opts.ID, Fingerprint: opts.Fingerprint, URL: opts.URL,
		Hosts: []string{peer.HostName(opts.URL)}})
	if err != nil {
		return "", &control.Error{Kind: control.ErrUnavailable, Cause: err, Message: fmt.Sprintf("no cluster can be reached at %s: %v", opts.URL, err),
			Advice: "check the address and the port (6447 by default)"}
	}
	id := res.Identity.ClusterID
	b.decisions.Proved(ctx, id, res.Shown)
	shown := control.Shown{ID: string(id), Name: res.Identity.ClusterName, Address: opts.URL, Fingerprint: res.Fingerprint.String()}
	if err := b.confirm(ctx, shown, b.decisions.Pin(id), opts.Fingerprint, opts.By); err != nil {
		return "", err
	}
	if err := errors.Join(b.remember(ctx, id, opts.URL, opts.By), b.rememberAsks(ctx, id, opts)); err != nil {
		return "", err
	}
	return id, b.decisions.Connect(ctx, id, opts.Once, opts.By)
}

// remember stores the URL that a person gave for a peer, and has it probed.
func (b *Backend) remember(ctx context.Context, id peer.ClusterID, where, by string) error {
	if where == "" {
		return nil
	}
	if err := b.decisions.Set(ctx, id, func(p *state.Preferences) { p.URL = where }, by); err != nil {
		return err
	}
	b.URLsChanged()
	return nil
}

// confirm trusts the key that a peer shows if a person confirmed it. It does nothing
// if that key is trusted already, and returns control.ErrNotTrusted if nobody
// confirmed it.
func (b *Backend) confirm(ctx context.Context, shown control.Shown, pin *peer.Pin, confirmed peer.Fingerprint, by string) error {
	id := peer.ClusterID(shown.ID)
	switch {
	case pin != nil && (shown.Fingerprint == "" || shown.Fingerprint == pin.Fingerprint.String()):
		return nil
	case pin != nil:
		shown.Pinned = pin.Fingerprint.String()
	case shown.Fingerprint == "":
		return &control.Error{Kind: control.ErrUnavailable, Message: fmt.Sprintf("the key of %s is not known yet, because its endpoint has not answered", cmp.Or(shown.Name, shown.ID)),
			Advice: "liqo-agent peers show " + shown.ID}
	}
	if confirmed.IsZero() || pin != nil {
		return b.notTrusted(shown)
	}
	if confirmed.String() != shown.Fingerprint {
		return &control.Error{Kind: control.ErrRefused,
			Message: fmt.Sprintf("%s shows the key %s, not %s: nothing was done", cmp.Or(shown.Name, shown.ID), shown.Fingerprint, confirmed),
			Advice:  "find out which of the two is right before you continue"}
	}
	return b.trustKey(ctx, id, confirmed, by)
}

// trustKey pins a key and makes it the one that the peer is known by.
func (b *Backend) trustKey(ctx context.Context, id peer.ClusterID, key peer.Fingerprint, by string) error {
	if err := b.decisions.Trust(ctx, id, key, by); err != nil {
		return err
	}
	return b.adopt(ctx, id, key)
}

func (b *Backend) adopt(ctx context.Context, id peer.ClusterID, key peer.Fingerprint) error {
	_, err := b.registry.Adopt(ctx, id, key)
	return err
}

func (b *Backend) notTrusted(shown control.Shown) error {
	if key, err := peer.ParseFingerprint(shown.Fingerprint); err == nil {
		shown.Code = trust.Code(b.key.Fingerprint(), key)
	}
	return control.NotTrusted(shown)
}

// shownPeer returns what a person sees of a peer before a decision about its key.
func shownPeer(id peer.ClusterID, p peer.Peer) control.Shown {
	return control.Shown{ID: string(id), Name: p.Name, Address: p.URL, Fingerprint: p.Fingerprint.String()}
}

func notFound(id peer.ClusterID) error {
	return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("cluster %s is not known here", id), Advice: "liqo-agent peers list --all"}
}

// Disconnect implements socket.Backend.
func (b *Backend) Disconnect(ctx context.Context, id peer.ClusterID, incoming bool, by string) error {
	if incoming {
		return b.decisions.DisconnectIncoming(ctx, id, by, "")
	}
	return b.decisions.Disconnect(ctx, id, by)
}

// Accept implements socket.Backend.
func (b *Backend) Accept(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error {
	shown, found := b.shown(id)
	pin := b.decisions.Pin(id)
	if !found && pin == nil {
		return notFound(id)
	}
	if pin == nil || shown.Fingerprint != "" && shown.Fingerprint != pin.Fingerprint.String() {
		if err := b.confirm(ctx, shown, pin, fingerprint, by); err != nil {
			return err
		}
		pin = b.decisions.Pin(id)
	}
	if pin != nil {
		fingerprint = pin.Fingerprint
	}
	return b.decisions.Accept(ctx, id, fingerprint, by)
}

// shown returns the key that a peer shows: that of its waiting request if there is one,
// else the one that its endpoint proved.
func (b *Backend) shown(id peer.ClusterID) (control.Shown, bool) {
	if ask, ok := b.ask(id); ok {
		return control.Shown{ID: string(id), Name: ask.Name, Address: address(ask), Fingerprint: ask.Fingerprint.String()}, true
	}
	p, ok := b.registry.Peer(id)
	return shownPeer(id, p), ok
}

// address returns the address that a request came from, "" if it came by the API
// server.
func address(r decisions.Request) string {
	if !r.Source.IsValid() {
		return ""
	}
	return r.Source.String()
}

// ask returns the request of a peer that waits for a decision.
func (b *Backend) ask(id peer.ClusterID) (decisions.Request, bool) {
	for _, r := range b.decisions.Requests() {
		if r.ID == id {
			return r, true
		}
	}
	return decisions.Request{}, false
}

// Trust implements socket.Backend.
func (b *Backend) Trust(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error {
	if !fingerprint.IsZero() {
		return b.trustKey(ctx, id, fingerprint, by)
	}
	pin := b.decisions.Pin(id)
	shown, found := b.shown(id)
	if p, ok := b.registry.Peer(id); ok && p.Conflict != nil {
		// The decision is about the other key.
		shown.Fingerprint, shown.Address = p.Conflict.Fingerprint.String(), p.Conflict.Addr
	}
	if !found && pin == nil {
		return notFound(id)
	}
	return b.confirm(ctx, shown, pin, fingerprint, by)
}

// Set implements socket.Backend.
func (b *Backend) Set(ctx context.Context, id peer.ClusterID, patch control.PreferencesPatch, by string) error {
	err := b.decisions.Set(ctx, id, func(p *state.Preferences) {
		if patch.AutoConnect != nil {
			p.AutoConnect = decision(*patch.AutoConnect)
		}
		if patch.AutoAccept != nil {
			p.AutoAccept = decision(*patch.AutoAccept)
		}
		if patch.Note != nil {
			p.Note = *patch.Note
		}
		if patch.URL != nil {
			p.URL = *patch.URL
		}
		setAsks(p, patch.Asks)
	}, by)
	if err == nil && patch.URL != nil {
		b.URLsChanged()
	}
	return err
}

// decision converts a choice; any other than yes and no is undecided.
func decision(c control.Choice) state.Decision {
	return map[control.Choice]state.Decision{control.Yes: state.Yes, control.No: state.No}[c]
}

// forgetPatience is how long Forget waits for the peerings with a peer to end. After
// that the peer is forgotten without notice, and finds out by itself.
const forgetPatience = 5 * time.Second

// Forget implements socket.Backend.
func (b *Backend) Forget(ctx context.Context, id peer.ClusterID, by string) error {
	if err := b.part(ctx, id, by); err != nil {
		return err
	}
	if err := b.decisions.Forget(ctx, id, by); err != nil {
		return err
	}
	b.URLsChanged()
	return b.registry.Forget(ctx, id)
}

// part ends both peerings with a peer, and waits up to forgetPatience for that: once
// its key is forgotten, the agent cannot call the peer any more. Without an API server
// it does not wait; objects that remain there have no effect later.
func (b *Backend) part(ctx context.Context, id peer.ClusterID, by string) error {
	view := b.peering.View(id)
	between, known := b.peering.Leftovers(id)
	if !between.Left() && !view.Outgoing.Wanted && !view.Incoming.Wanted {
		return nil
	}
	sub := b.registry.Subscribe()
	defer sub.Close()
	if err := errors.Join(b.decisions.Disconnect(ctx, id, by), b.decisions.DisconnectIncoming(ctx, id, by, "The provider forgot this cluster.")); err != nil {
		return err
	}
	patience := time.NewTimer(forgetPatience)
	defer patience.Stop()
	for known {
		if between, known = b.peering.Leftovers(id); !between.Left() {
			return nil
		}
		select {
		case <-sub.Ready():
			sub.Take()
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
