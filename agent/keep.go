package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Key implements control.Backend.
func (b *backend) Key(context.Context) (control.Key, error) {
	view := keyView(b.key)
	// A key has no date, but its file was written when it was created.
	if info, err := os.Stat(filepath.Join(b.config().State.Dir, trust.KeyFile)); err == nil {
		view.CreatedAt = info.ModTime().UTC().Truncate(time.Second)
	}
	return view, nil
}

func keyView(k *trust.Key) control.Key {
	return control.Key{Fingerprint: k.Fingerprint().String(), PublicKey: string(k.PublicPEM()), Successions: len(k.Successions())}
}

// CSR implements control.Backend.
func (b *backend) CSR(_ context.Context, names []string) (string, error) {
	request, err := b.key.CSR(names)
	if err != nil {
		return "", &control.Error{Kind: control.ErrInvalid, Message: err.Error(), Cause: err}
	}
	return string(request), nil
}

// rotation is the replacement of this cluster's key. The lock permits it once per
// session, and not while a reset begins.
type rotation struct {
	sync.Mutex
	successor *trust.Key // the new key, with which the next session starts; nil: none
	end       func(cause error)
}

// RotateKey implements control.Backend. The agent's parts start again with the
// new key a moment after it returns.
func (b *backend) RotateKey(ctx context.Context, by string) (control.Key, error) {
	b.rotation.Lock()
	defer b.rotation.Unlock()
	if b.rotation.successor != nil {
		return control.Key{}, &control.Error{Kind: control.ErrUnavailable, Message: "the key was just replaced, and the agent is restarting with the new one"}
	}
	if b.store.Volatile() {
		return control.Key{}, &control.Error{Kind: control.ErrRefused, Message: "the state directory cannot be written, so a new key would not be kept",
			Advice: "make " + b.config().State.Dir + " writable and restart the agent"}
	}
	next, err := trust.Rotate(b.config().State.Dir, b.key)
	if err != nil {
		return control.Key{}, fmt.Errorf("replace the cluster key: %w", err)
	}
	b.rotation.successor = next
	detail := fmt.Sprintf("our key: %s -> %s, by %s", b.key.Fingerprint(), next.Fingerprint(), by)
	b.logger.Info("the cluster key was replaced; peers follow because the old key signed the new one",
		"old", b.key.Fingerprint(), "new", next.Fingerprint(), "by", by)
	event := peer.Event{At: b.now(), ID: b.id, Kind: peer.EventKeyRotated, Detail: detail}
	if err := b.store.Apply(ctx, state.Change{Events: []peer.Event{event}}); err != nil {
		b.logger.Warn("cannot record the new key in the history", "error", err)
	}
	b.rotation.end(&keyReplaced{key: next})
	return keyView(next), nil
}

// inviteView is an invite as the control socket shows it.
func (b *backend) inviteView(i state.Invite) control.Invite {
	out := control.Invite{
		ID: i.ID, State: control.InviteOpen, Note: i.Note, CreatedAt: i.CreatedAt, CreatedBy: i.CreatedBy,
		ExpiresAt: i.ExpiresAt, UsedAt: i.UsedAt, UsedBy: string(i.UsedBy),
	}
	switch {
	case !i.UsedAt.IsZero():
		out.State = control.InviteUsed
	case !i.RevokedAt.IsZero():
		out.State = control.InviteRevoked
	case !b.now().Before(i.ExpiresAt):
		out.State = control.InviteExpired
	}
	return out
}
