package socket

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
)

// Every decision about an offer reaches the backend, with the name of who made it.
func TestAdverts(t *testing.T) {
	m := &memory{peers: twoPeers(), adverts: []control.Advert{{ID: idBarn, Name: "barn", Status: control.AdvertAccepted}, {ID: "stranger-1", Name: "stranger-1", Status: control.AdvertPending}}}
	_, c := serve(t, m)
	ctx, self := t.Context(), me(t)
	known, err := c.Adverts(ctx)
	if err != nil || len(known) != 2 || known[0].ID != idBarn || known[1].Status != control.AdvertPending || known[0].Resources == nil || known[0].Images == nil {
		t.Errorf("Adverts = %+v, %v", known, err)
	}
	if one, err := c.Advert(ctx, "barn"); err != nil || one.ID != idBarn {
		t.Errorf("Advert = %+v, %v", one, err)
	}
	for _, tc := range []struct {
		ref    string
		accept bool
		status string
		want   string
	}{
		{"barn", false, control.AdvertRefused, "decide-advert " + idBarn + " accept=false " + self},
		{"stranger", true, control.AdvertAccepted, "decide-advert stranger-1 accept=true " + self},
	} {
		one, err := c.DecideAdvert(ctx, tc.ref, tc.accept)
		if heard := m.heard(); err != nil || one.Status != tc.status || !cmp.Equal(heard, []string{tc.want}) {
			t.Errorf("%s: %+v, %v, the backend heard %q", tc.ref, one, err, heard)
		}
	}
	var e *control.Error
	if _, err := c.DecideAdvert(ctx, "silo", true); !errors.Is(err, control.ErrNotFound) || !errors.As(err, &e) || e.Error() != "silo offers nothing to this cluster" || e.Try() != "liqo-agent adverts list" {
		t.Errorf("who offers nothing: %v", err)
	}
	if _, err := c.Advert(ctx, "cellar"); !errors.Is(err, control.ErrNotFound) || !strings.Contains(err.Error(), "cellar") {
		t.Errorf("who is unknown: %v", err)
	}
	if heard := m.heard(); len(heard) > 0 {
		t.Errorf("the backend heard %q", heard)
	}
	m.change(func() { m.fail = &control.Error{Kind: control.ErrUnavailable, Message: "no API server"} })
	if _, err := c.Adverts(ctx); !errors.Is(err, control.ErrUnavailable) {
		t.Errorf("what the backend says arrives as %v", err)
	}
}
