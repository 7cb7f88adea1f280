package backend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// Storage implements socket.Backend.
func (b *Backend) Storage(context.Context) (control.Storage, error) { return b.Stored(), nil }

// Stored returns what claims keep at other clusters, and others' claims here.
func (v *Views) Stored() control.Storage {
	settings := v.sharing.Settings()
	out := control.Storage{Class: settings.StorageClass, OfferedBytes: v.sharing.OfferedStorage(), Problem: v.sharing.StorageProblem()}
	for _, volume := range v.sharing.Volumes() {
		own := control.OwnStorage{
			ID: string(volume.Provider), Namespace: volume.Namespace, Claim: volume.Name, Bytes: volume.Storage,
			State: string(volume.State), Message: volume.Message, Since: volume.Since.UTC(),
		}
		if volume.Provider != "" {
			own.Name = v.Label(volume.Provider)
		}
		out.Own = append(out.Own, own)
	}
	for id, status := range v.sharing.Stored() {
		guest := control.GuestStorage{ID: string(id), Name: v.Label(id), Claims: status.Claims, Bytes: status.Storage, State: control.StorageInUse}
		if !status.RetainedSince.IsZero() {
			guest.State, guest.Since, guest.Until = control.StorageRetained, status.RetainedSince.UTC(), status.RetainedSince.Add(settings.StorageKeep).UTC()
		}
		out.Guests = append(out.Guests, guest)
	}
	slices.SortFunc(out.Guests, func(a, b control.GuestStorage) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out
}

// ReclaimStorage implements socket.Backend.
func (b *Backend) ReclaimStorage(ctx context.Context, id peer.ClusterID) (control.Reclaimed, error) {
	status, known := b.sharing.Stored()[id]
	switch {
	case !known:
		return control.Reclaimed{}, &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%s has no claims in this cluster", id), Advice: "liqo-agent storage list shows who has some"}
	case status.RetainedSince.IsZero():
		return control.Reclaimed{}, &control.Error{Kind: control.ErrRefused, Message: fmt.Sprintf("%s uses its claims in this cluster", b.Label(id)),
			Advice: "end the peering first: liqo-agent peers disconnect " + string(id) + " --incoming"}
	}
	if err := b.sharing.ReclaimStorage(ctx, id); err != nil {
		return control.Reclaimed{}, &control.Error{Kind: control.ErrUnavailable, Message: fmt.Sprintf("remove the claims of %s: %v", b.Label(id), err)}
	}
	return control.Reclaimed{Claims: status.Claims, Bytes: status.Storage}, nil
}
