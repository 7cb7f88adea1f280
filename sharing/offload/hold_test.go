package offload

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A provider that wants nothing more for a while is left alone for as long as it says,
// with everything that would be sent. What is done here goes on, and what is deleted
// there.
func TestProviderThatAsksToWait(t *testing.T) {
	const pause = 2 * time.Second
	pods := []*corev1.Pod{podHere("running")}
	for i := range 40 {
		pods = append(pods, podHere(fmt.Sprint("new-", i)))
	}
	now := time.Now()
	going, long := podHere("going"), int64(30)
	going.DeletionTimestamp, going.DeletionGracePeriodSeconds = timeAt(now), &long
	pods = append(pods, going)

	var mu sync.Mutex
	var refused time.Time // when it asked first
	early, sent, deleted := 0, make(map[string]bool), time.Time{}
	full := make(chan struct{})
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
			listOrHang(w, r, []any{copyThere(pods[0], "1", corev1.PodRunning), copyThere(going, "1", corev1.PodRunning)})
		case r.Method == http.MethodGet:
			listOrHang(w, r, nil)
		case r.Method == http.MethodDelete:
			mu.Lock()
			deleted = time.Now()
			mu.Unlock()
			fmt.Fprint(w, `{}`)
		default:
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if refused.IsZero() {
				refused = time.Now()
			}
			if time.Since(refused) < pause {
				early++
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":2}}`)
				return
			}
			if r.Method == http.MethodPatch {
				fmt.Fprint(w, `{}`)
				return
			}
			var pod corev1.Pod
			if err := json.Unmarshal(body, &pod); err != nil {
				t.Error(err)
			}
			if sent[pod.Name] = true; len(sent) == 40 {
				close(full)
			}
			fmt.Fprintf(w, `{"metadata":{"uid":"their-%d"}}`, len(sent))
		}
	}, pods...)
	select {
	case <-full:
	case <-time.After(hang):
		t.Fatal("not all are sent")
	}
	mu.Lock()
	defer mu.Unlock()
	if early > workers {
		t.Errorf("%d requests came although it asked to wait", early)
	}
	if deleted.IsZero() || deleted.Sub(refused) >= pause {
		t.Error("what is to be deleted waits as well")
	}
	if len(n.local.statuses("running")) == 0 {
		t.Error("what runs there is not shown here")
	}
}
