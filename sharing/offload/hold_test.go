package offload

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
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
	for _, pause := range []time.Duration{2 * time.Second, time.Minute} {
		t.Run(pause.String(), func(t *testing.T) { waitsFor(t, pause) })
	}
}

func waitsFor(t *testing.T, pause time.Duration) {
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
	early, sent := 0, make(map[string]bool)
	full, deleted := make(chan struct{}), make(chan struct{}, 1)
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
			listOrHang(w, r, []any{copyThere(pods[0], "1", corev1.PodRunning), copyThere(going, "1", corev1.PodRunning)})
		case r.Method == http.MethodGet:
			listOrHang(w, r, nil)
		case r.Method == http.MethodDelete:
			select {
			case deleted <- struct{}{}:
			default:
			}
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
				w.Header().Set("Retry-After", strconv.Itoa(int(pause.Seconds())))
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":%d}}`, int(pause.Seconds()))
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
	done := full
	if pause >= time.Minute {
		done = deleted // what is to be deleted does not wait
	}
	select {
	case <-done:
	case <-time.After(hang):
		t.Fatal("what is to happen by now has not")
	}
	for done == full && len(n.local.statuses("running")) == 0 {
		select {
		case <-n.local.wrote:
		case <-time.After(hang):
			t.Fatal("what runs there is not shown here")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if pause >= time.Minute && len(sent) > 0 {
		t.Errorf("%d were sent at once", len(sent))
	}
	if early > workers {
		t.Errorf("%d requests came although it asked to wait", early)
	}
}
