package offload

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// TestStraysOfBefore: pods at a provider whose pods here were deleted while there was no agent are all deleted by the one that starts.
func TestStraysOfBefore(t *testing.T) {
	const strays = 600
	local := podHere("web")
	var mu sync.Mutex
	deleted := make(map[string]bool)
	between(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			mu.Lock()
			deleted[path.Base(r.URL.Path)] = true
			mu.Unlock()
			fmt.Fprint(w, `{}`)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			items := []any{copyThere(local, "1", corev1.PodRunning)}
			for i := range strays {
				items = append(items, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "guest-shop", Name: fmt.Sprint("stray-", i), UID: types.UID(fmt.Sprint("u-", i)), ResourceVersion: "1",
					Annotations: map[string]string{workload.AnnotationOriginUID: fmt.Sprint("earlier-", i)},
				}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			}
			listOrHang(w, r, items)
		default:
			listOrHang(w, r, nil)
		}
	}, local)
	for last, since := 0, time.Now(); ; time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		now := len(deleted)
		mu.Unlock()
		switch {
		case now == strays:
			return
		case now > last:
			last, since = now, time.Now()
		case time.Since(since) > time.Minute:
			t.Fatalf("%d of %d pods run on at the provider, and nothing happens any more", strays-now, strays)
		}
	}
}

// TestStraysAreForgotten: nothing stays of pods without a local one when a remote namespace is given back, since nobody says of
// them any more that they are gone.
func TestStraysAreForgotten(t *testing.T) {
	v := newVault()
	n := join(t, v.local(podHere("web")), &far{}, v.ServeHTTP)
	pc, rn := n.opened(t)
	stray, own := key{aPod, "shop", "stray"}, key{aPod, "shop", "own"}
	pc.remember(stray, func(m *podState) { m.removing = "u" })
	pc.remember(own, func(m *podState) { m.local, m.removing = "l", "v" })
	pc.shut(rn)
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if _, kept := pc.states[stray]; kept || pc.states[own].removing != "v" {
		t.Errorf("what is known of pods is %+v", pc.states)
	}
}
