package backend

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

// Key implements socket.Backend.
func (b *Backend) Key(context.Context) (control.Key, error) {
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

// CSR implements socket.Backend.
func (b *Backend) CSR(_ context.Context, names []string) (string, error) {
	request, err := b.key.CSR(names)
	if err != nil {
		return "", &control.Error{Kind: control.ErrInvalid, Message: err.Error(), Cause: err}
	}
	return string(request), nil
}

// Rotation is the replacement of this cluster's key, which is possible once per session.
// Whoever holds the lock prevents it.
type Rotation struct {
	sync.Mutex
	// Replaced ends the session, because the key has a successor.
	Replaced  func(successor *trust.Key)
	successor *trust.Key // nil: none
}

// RotateKey implements socket.Backend. The agent's parts start again with the
// new key a moment after it returns.
func (b *Backend) RotateKey(ctx context.Context, by string) (control.Key, error) {
	b.Rotation.Lock()
	defer b.Rotation.Unlock()
	if b.Rotation.successor != nil {
		return control.Key{}, &control.Error{Kind: control.ErrUnavailable, Message: "the key was just replaced, and the agent is restarting with the new one"}
	}
	if b.Store.Volatile() {
		return control.Key{}, &control.Error{Kind: control.ErrRefused, Message: "the state directory cannot be written, so a new key would not be kept",
			Advice: "make " + b.config().State.Dir + " writable and restart the agent"}
	}
	next, err := trust.Rotate(b.config().State.Dir, b.key)
	if err != nil {
		return control.Key{}, fmt.Errorf("replace the cluster key: %w", err)
	}
	b.Rotation.successor = next
	detail := fmt.Sprintf("our key: %s -> %s, by %s", b.key.Fingerprint(), next.Fingerprint(), by)
	b.Logger.Info("the cluster key was replaced; peers follow because the old key signed the new one",
		"old", b.key.Fingerprint(), "new", next.Fingerprint(), "by", by)
	event := peer.Event{At: b.Now(), ID: b.id, Kind: peer.EventKeyRotated, Detail: detail}
	if err := b.Store.Apply(ctx, state.Change{Events: []peer.Event{event}}); err != nil {
		b.Logger.Warn("cannot record the new key in the history", "error", err)
	}
	b.Rotation.Replaced(next)
	return keyView(next), nil
}
