package host

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/storageclass"
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
	h := New(configOf(func() Settings { return Settings{Storage: total} }))
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
	class := func(name, provisioner string, made int64, def bool) *storageclass.Class {
		c := &storageclass.Class{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(made, 0)}, Provisioner: provisioner}
		if def {
			c.Annotations = map[string]string{storageclass.AnnotationDefault: "true"}
		}
		return c
	}
	for _, test := range []struct {
		name    string
		classes []*storageclass.Class
		setting string
		says    string
	}{
		{"none", nil, "", "no default storage class"},
		{"none of that name", []*storageclass.Class{class("a", "x", 1, true)}, "b", `no storage class "b"`},
		{"no default", []*storageclass.Class{class("a", "x", 1, false)}, "", "no default storage class"},
		{"default", []*storageclass.Class{class("a", "x", 1, true)}, "", ""},
		{"named", []*storageclass.Class{class("a", "x", 1, false)}, "a", ""},
		{"ours", []*storageclass.Class{class("liqo", "storage.liqo.io", 1, true)}, "", "keeps its data at peers"},
		{"ours by name", []*storageclass.Class{class("liqo", "storage.liqo.io", 1, false)}, "liqo", "keeps its data at peers"},
		{"the newest of two", []*storageclass.Class{class("liqo", "storage.liqo.io", 1, true), class("a", "x", 2, true)}, "", ""},
		{"the newest of two, ours", []*storageclass.Class{class("liqo", "storage.liqo.io", 2, true), class("a", "x", 1, true)}, "", "keeps its data at peers"},
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

// TestExpandable: a claim grows if its own class can do that, whatever the class for new ones is; and what
// it was granted counts although it asks for less since.
func TestExpandable(t *testing.T) {
	s := &session{host: New(configOf(func() Settings { return Settings{} }))}
	s.makeClaimCaches()
	for name, expands := range map[string]bool{"fixed": false, "elastic": true} {
		s.classes.Wrote(&storageclass.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: expands})
	}
	bytes := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(n, resource.BinarySI)}
	}
	for _, name := range []string{"fixed", "elastic", "gone"} {
		c := &guestClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		c.Spec.StorageClassName, c.Spec.Resources.Requests = name, bytes(5)
		s.claims.Wrote(c)
		if r := s.expandable("ns", name, 5); r != nil {
			t.Errorf("%s as it is: %v", name, r)
		}
		if r := s.expandable("ns", name, 6); (r == nil) != (name == "elastic") || r != nil && r.Reason != ReasonNoExpansion {
			t.Errorf("%s with more: %v", name, r)
		}
		c.Status.Allocated = bytes(9)
		if got := c.size(); got != 9 {
			t.Errorf("%s counts as %d", name, got)
		}
	}
	if r := s.expandable("ns", "new", 5); r != nil {
		t.Errorf("a new claim: %v", r)
	}
}
