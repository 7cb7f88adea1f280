package offload

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/attack"
)

// A provider may say what it likes, for as long as it likes: what is kept of it has a
// bound. Beyond that it is not listened to any more, and the reason is known.
func TestAttackProviderThatSaysTooMuch(t *testing.T) {
	const (
		enough = 8 << 20  // bytes that it says, of more than maxKept objects
		most   = 96 << 20 // bytes that may be in use then
		calm   = "it goes on, in bounded memory"
		over   = "it is not listened to any more, in bounded memory"
	)
	local := podHere("web")
	event := func(i int, pod, filler string) string {
		return fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":"e%d","namespace":"guest-shop","uid":"e%d","resourceVersion":"%d","labels":{"a":%q}},`+
			`"involvedObject":{"kind":"Pod","name":%q,"uid":"other"},"reason":"Because","type":"Normal","message":%q}}`+"\n", i, i, i+2, filler, pod, filler)
	}
	made := func(kind string, i int) string {
		return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":"p%d","namespace":"guest-shop","uid":"p%d","resourceVersion":"%d"},"status":{"phase":"Running"}}}`+"\n", kind, i, i, i+2)
	}
	for _, tt := range []struct {
		what, want string
		resource   string // which watch, or list, is without end
		watch      bool
		begin      string
		piece      func(i int) string
	}{
		{"events about pods that do not exist, without end", calm, "events", true, "", func(i int) string { return event(i, "other", "why") }},
		{"events about a pod under ever new names", over, "events", true, "", func(i int) string { return event(i, "web", "why") }},
		{"long events about a pod", calm, "events", true, "", func(i int) string { return event(i, "web", strings.Repeat("long ", 10_000)) }},
		{"an event without end", over, "events", true, `{"type":"ADDED","object":{"message":"`, func(int) string { return "and so on " }},
		{"pods that do not exist, without end", over, "pods", true, "", func(i int) string { return made("ADDED", i) }},
		{"pods that do not exist, which come and go", calm, "pods", true, "", func(i int) string { return made("ADDED", i) + made("DELETED", i) }},
		{"a list of pods without end", over, "pods", false, `{"items":[`, func(i int) string { return fmt.Sprintf(`{"metadata":{"name":"p%d"}},`, i) }},
		{"a pod of ever more containers", over, "pods", false, `{"items":[{"spec":{"containers":[`, func(int) string { return `{},` }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var said atomic.Int64
			finished := make(chan struct{})
			var once sync.Once
			n := between(t, func(w http.ResponseWriter, r *http.Request) {
				resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				if resource != tt.resource || (r.URL.Query().Get("watch") != "") != tt.watch || r.URL.Query().Get("sendInitialEvents") != "" {
					var items []any
					if resource == "pods" {
						items = append(items, copyThere(local, "1", corev1.PodRunning))
					}
					listOrHang(w, r, items)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, tt.begin)
				var text strings.Builder
				for i := 0; !tt.watch || said.Load() < enough; {
					text.Reset()
					for text.Len() < 64<<10 {
						text.WriteString(tt.piece(i))
						i++
					}
					k, err := io.WriteString(w, text.String())
					said.Add(int64(k))
					if err != nil {
						return
					}
				}
				w.(http.Flusher).Flush()
				once.Do(func() { close(finished) })
				<-r.Context().Done()
			}, local)
			end := finished
			if tt.want == over {
				end = nil
			}
			got := calm
			select {
			case <-n.told:
				if got = over; n.Excess(farID) == nil {
					t.Error("no reason is given")
				}
			case <-end:
			case <-time.After(hang):
				t.Fatal("nothing comes of it")
			}
			for deadline := time.Now().Add(hang); got == calm && n.keeps() > 100; {
				if time.Sleep(time.Millisecond); time.Now().After(deadline) {
					got = fmt.Sprintf("%d objects and keys are kept", n.keeps())
				}
			}
			runtime.GC()
			var in runtime.MemStats
			runtime.ReadMemStats(&in)
			if in.HeapAlloc > most {
				got = fmt.Sprintf("%d MiB are in use", in.HeapAlloc>>20)
			}
			attack.Attempt{What: tt.what, As: "provider", Want: tt.want}.Saw(t, got)
		})
	}
}
