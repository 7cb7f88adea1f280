package host

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/spec"
)

func TestReserveClaim(t *testing.T) {
	now := time.Now()
	a := newAccount(func() time.Time { return now })
	a.putClaim("ns/data", 4)
	for _, test := range []struct {
		name              string
		size, offer, left int64
		reason            string
	}{
		{"ns/data", 4, 0, 0, ""}, // as it is
		{"ns/data", 5, 0, 0, ReasonNoStorage},
		{"ns/more", 6, 10, 100, ""},
		{"ns/more", 6, 10, 100, ""}, // again
		{"ns/other", 1, 10, 100, ReasonOfferUsedUp},
		{"ns/other", 1, 100, 10, ReasonOfferUsedUp},
		{"ns/data", 5, 11, 11, ""}, // grows
	} {
		r := a.reserveClaim(test.name, test.size, test.offer, test.left)
		if (r == nil) != (test.reason == "") || r != nil && r.Reason != test.reason {
			t.Errorf("%s of %d in %d (%d left): %v, want %q", test.name, test.size, test.offer, test.left, r, test.reason)
		}
	}
	if got := a.claimed(); got != 11 {
		t.Errorf("%d bytes are claimed", got)
	}
	now = now.Add(reservation)
	if claims, bytes := a.storage(); claims != 1 || bytes != 4 || a.claimed() != 4 || a.hasClaim("ns/more") || !a.hasClaim("ns/data") {
		t.Errorf("after a while: %d claims of %d bytes, %d claimed", claims, bytes, a.claimed())
	}
	for i := range maxClaims {
		a.putClaim("many/"+strings.Repeat("x", i+1), 0)
	}
	if r := a.reserveClaim("ns/last", 1, 100, 100); r == nil || r.Reason != ReasonTooManyObjects {
		t.Errorf("too many: %v", r)
	}
}

// TestStorageOfAll: whatever they were offered before, all consumers together get no more than
// the setting says, however many ask at once.
func TestStorageOfAll(t *testing.T) {
	const total, each = 100, 7
	h := New(Config{
		Settings: func() Settings { return Settings{Storage: total} }, Registries: func() registry.List { return registry.List{} },
		Users: func(peer.ClusterID) []string { return nil }, Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler),
	})
	var granted atomic.Int64
	var group sync.WaitGroup
	for _, id := range []peer.ClusterID{"a", "b", "c"} {
		h.Set(spec.Tenant{ID: id, Admitted: true, Offer: map[string]string{"storage": "60"}})
		h.mu.Lock()
		n := h.tenants[id]
		st := standing{tenant: n, offer: n.offer, settings: n.settings}
		h.mu.Unlock()
		for i := range 20 {
			group.Go(func() {
				if h.reserveClaim(st, string(id)+"/"+strings.Repeat("x", i+1), each) == nil {
					granted.Add(each)
				}
			})
		}
	}
	group.Wait()
	if got := granted.Load(); got != total/each*each {
		t.Errorf("%d bytes are granted, of %d", got, total)
	}
}

// TestClassForGuests: claims of guests need a class here, which does not lead to a third cluster.
func TestClassForGuests(t *testing.T) {
	class := func(name, provisioner string, made int64, def bool) *StorageClass {
		c := &StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(made, 0)}, Provisioner: provisioner}
		if def {
			c.Annotations = map[string]string{AnnotationDefaultClass: "true"}
		}
		return c
	}
	for _, test := range []struct {
		name    string
		classes []*StorageClass
		setting string
		says    string
	}{
		{"none", nil, "", "no default storage class"},
		{"none of that name", []*StorageClass{class("a", "x", 1, true)}, "b", `no storage class "b"`},
		{"no default", []*StorageClass{class("a", "x", 1, false)}, "", "no default storage class"},
		{"default", []*StorageClass{class("a", "x", 1, true)}, "", ""},
		{"named", []*StorageClass{class("a", "x", 1, false)}, "a", ""},
		{"ours", []*StorageClass{class("liqo", "storage.liqo.io", 1, true)}, "", "keeps its data at peers"},
		{"ours by name", []*StorageClass{class("liqo", "storage.liqo.io", 1, false)}, "liqo", "keeps its data at peers"},
		{"the newest of two", []*StorageClass{class("liqo", "storage.liqo.io", 1, true), class("a", "x", 2, true)}, "", ""},
		{"the newest of two, ours", []*StorageClass{class("liqo", "storage.liqo.io", 2, true), class("a", "x", 1, true)}, "", "keeps its data at peers"},
	} {
		s := &session{}
		s.makeClaimCaches()
		for _, c := range test.classes {
			s.classes.Wrote(c)
		}
		switch _, r := s.class(test.setting); {
		case (r == nil) != (test.says == ""), r != nil && (r.Reason != ReasonNoStorage || !strings.Contains(r.Message, test.says)):
			t.Errorf("%s: %v, want %q", test.name, r, test.says)
		}
	}
}
