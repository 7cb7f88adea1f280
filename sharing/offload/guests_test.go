package offload

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestGuests: what a node's pods use is asked about those that run at the provider, and have
// a copy there.
func TestGuests(t *testing.T) {
	web, pending, foreign := podHere("web"), podHere("pending"), podHere("foreign")
	web.Status.Phase, foreign.Status.Phase = corev1.PodRunning, corev1.PodRunning
	other := copyThere(foreign, "1", corev1.PodRunning)
	other.Annotations = nil // somebody else's, of the same name
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
			listOrHang(w, r, []any{copyThere(web, "1", corev1.PodRunning), copyThere(pending, "1", corev1.PodPending), other})
			return
		}
		listOrHang(w, r, nil)
	}, web, pending, foreign)
	for deadline := time.After(hang); ; {
		id, guests, known := n.Guests(string(farID))
		if known && id == farID && len(guests) == 1 && len(guests["guest-shop"]) == 1 && guests["guest-shop"][0].Name == "web" {
			break
		}
		select {
		case <-n.local.wrote:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%v %v, %v", known, id, guests)
		}
	}
	if _, _, known := n.Guests("other"); known || len(n.Nodes()) != 1 || n.Nodes()[0] != string(farID) {
		t.Errorf("nodes %q, another one is known: %v", n.Nodes(), known)
	}
}
