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
		calm = "it goes on, in bounded memory"
		over = "it is not listened to any more, in bounded memory"
	)
	// A twentieth of the usual limits shows the same.
	few := limits{objects: maxKept / 20, bytes: maxTheirs / 20, list: maxListed / 20, object: maxTold / 20, keys: maxQueued / 20}
	enough, pieces := int(few.bytes)*5/4, few.objects*5/4 // that it says
	const most = 12 << 20                                 // bytes that may be in use then, beside those that were before
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
			var said atomic.Bool
			taken := make(chan struct{}) // it asks again, after all that was said
			var once sync.Once
			here := &localServer{namespaces: []string{"shop"}, pods: []*corev1.Pod{local}, config: func(c *Config) { c.limits = few }}
			before := inUse()
			n := join(t, here, &far{}, func(w http.ResponseWriter, r *http.Request) {
				resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				if resource == tt.resource && said.Load() {
					once.Do(func() { close(taken) })
				}
				if resource != tt.resource || (r.URL.Query().Get("watch") != "") != tt.watch || r.URL.Query().Get("sendInitialEvents") != "" || said.Load() {
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
				for i, bytes := 0, 0; bytes < enough && (tt.want == over || i < pieces); bytes += text.Len() {
					text.Reset()
					for text.Len() < 64<<10 {
						text.WriteString(tt.piece(i))
						i++
					}
					if _, err := io.WriteString(w, text.String()); err != nil {
						return
					}
				}
				said.Store(true)
			})
			got := calm
			select {
			case <-n.told:
				got = over
			case <-taken:
				if n.Excess(farID) != nil {
					got = over
				}
			case <-time.After(hang):
				t.Fatal("nothing comes of it")
			}
			if got == over && n.Excess(farID) == nil {
				t.Error("no reason is given")
			}
			for deadline := time.Now().Add(hang); got == calm && n.keeps() > 100; {
				if time.Sleep(time.Millisecond); time.Now().After(deadline) {
					got = fmt.Sprintf("%d objects and keys are kept", n.keeps())
				}
			}
			if more := inUse() - before; more > most {
				got = fmt.Sprintf("%d MiB more are in use", more>>20)
			}
			attack.Attempt{What: tt.what, As: "provider", Want: tt.want}.Saw(t, got)
		})
	}
}

// inUse is how many bytes of the heap are.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
