package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every decision about an offer reaches the backend, with the name of who made it.
func TestAdverts(t *testing.T) {
	m := &memory{peers: twoPeers(), adverts: []Advert{{ID: idBarn, Name: "barn", Status: AdvertAccepted}, {ID: "stranger-1", Name: "stranger-1"}}}
	_, c := serve(t, m)
	ctx, self := t.Context(), me(t)
	known, err := c.Adverts(ctx)
	if err != nil || len(known) != 2 || known[0].ID != idBarn || known[1].Status != AdvertPending || known[0].Resources == nil || known[0].Images == nil {
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
		{"barn", false, AdvertRefused, "decide-advert " + idBarn + " accept=false " + self},
		{"stranger", true, AdvertAccepted, "decide-advert stranger-1 accept=true " + self},
	} {
		one, err := c.DecideAdvert(ctx, tc.ref, tc.accept)
		if heard := m.heard(); err != nil || one.Status != tc.status || !cmp.Equal(heard, []string{tc.want}) {
			t.Errorf("%s: %+v, %v, the backend heard %q", tc.ref, one, err, heard)
		}
	}
	var e *Error
	if _, err := c.DecideAdvert(ctx, "silo", true); !errors.Is(err, ErrNotFound) || !errors.As(err, &e) || e.Error() != "silo offers nothing to this cluster" || e.Try() != "liqo-agent adverts list" {
		t.Errorf("who offers nothing: %v", err)
	}
	if _, err := c.Advert(ctx, "cellar"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "cellar") {
		t.Errorf("who is unknown: %v", err)
	}
	if heard := m.heard(); len(heard) > 0 {
		t.Errorf("the backend heard %q", heard)
	}
	m.change(func() { m.fail = &Error{Kind: ErrUnavailable, Message: "no API server"} })
	if _, err := c.Adverts(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("what the backend says arrives as %v", err)
	}
}

// The JSON of what is shared is a contract.
func TestSharingJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	one := map[string]string{"cpu": "1"}
	provider, consumer := Provider{ID: "id", Name: "barn", Node: "id", Ready: true, Reason: "r", Message: "m", Offered: one, Pods: 2},
		Consumer{ID: "id", Name: "barn", Promised: one, Used: one, Pods: 2, Namespaces: 1, Ending: true}
	const providerJSON = `{"id":"id","name":"barn","node":"id","ready":true,"reason":"r","message":"m","offered":{"cpu":"1"},"pods":2}`
	const consumerJSON = `{"id":"id","name":"barn","promised":{"cpu":"1"},"used":{"cpu":"1"},"pods":2,"namespaces":1,"ending":true}`
	for want, value := range map[string]any{
		`{"id":"id","name":"barn","status":"Accepted","reason":"r","message":"m","decidedBy":"kubectl","expired":true,"resources":{"cpu":"1"},"labels":{"cpu":"1"},"arch":"arm64",` +
			`"os":"linux","images":["a"],"offeredAt":"2026-11-21T08:00:00Z","expiresAt":"2026-11-21T08:00:00Z","createdAt":"2026-11-21T08:00:00Z","node":"n","nodeReady":true,` +
			`"nodeReason":"r","nodeMessage":"m","pods":2}`: Advert{ID: "id", Name: "barn", Status: AdvertAccepted, Reason: "r", Message: "m", DecidedBy: "kubectl", Expired: true, Resources: one,
			Labels: one, Arch: "arm64", OS: "linux", Images: []string{"a"}, OfferedAt: at, ExpiresAt: at, CreatedAt: at, Node: "n", NodeReady: true, NodeReason: "r", NodeMessage: "m", Pods: 2},
		`{"id":"x","name":"","status":"Pending","reason":"","message":"","decidedBy":"","expired":false,"resources":{},"labels":{},"arch":"","os":"","images":[],"node":"",` +
			`"nodeReady":false,"nodeReason":"","nodeMessage":"","pods":0}`: Advert{ID: "x"}.withoutNulls(),
		`{"offering":{"enabled":true,"percentage":50,"overcommit":100,"source":"s","pool":{"cpu":"1"},"message":"m","consumers":[` + consumerJSON + `]},` +
			`"using":{"enabled":true,"policy":"auto","maxAccepted":128,"source":"s","accepted":1,"pending":2,"refused":3,"providers":[` + providerJSON + `]}}`: Sharing{
			Offering: Offering{Enabled: true, Percentage: 50, Overcommit: 100, Source: "s", Pool: one, Message: "m", Consumers: []Consumer{consumer}},
			Using:    Using{Enabled: true, Policy: "auto", MaxAccepted: 128, Source: "s", Accepted: 1, Pending: 2, Refused: 3, Providers: []Provider{provider}}},
		`{"offering":{"enabled":false,"percentage":0,"overcommit":0,"source":"","pool":{},"message":"","consumers":[{"id":"","name":"","promised":{},"used":{},"pods":0,"namespaces":0,"ending":false}]},` +
			`"using":{"enabled":false,"policy":"","maxAccepted":0,"source":"","accepted":0,"pending":0,"refused":0,"providers":[]}}`: Sharing{Offering: Offering{Consumers: make([]Consumer, 1)}}.withoutNulls(),
		`{"provider":` + providerJSON + `,"consumer":` + consumerJSON + `}`: PeerSharing{Provider: &provider, Consumer: &consumer}.withoutNulls(),
		`{}`: PeerSharing{},
	} {
		got, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
