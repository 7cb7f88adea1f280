package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func boundedCache(b *Bounds) *Cache[*corev1.Pod] {
	return NewCache(Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }, Bounds: b})
}

// flood writes a piece again and again until nobody reads any more, and counts bytes.
func flood(w http.ResponseWriter, begin, piece string, written *atomic.Int64) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, begin)
	text := strings.Repeat(piece, 1+(32<<10)/len(piece))
	for {
		n, err := io.WriteString(w, text)
		if written.Add(int64(n)); err != nil {
			return
		}
	}
}

// Whatever is without end, it is given up where its bound is, and nothing like its
// length is kept.
func TestBoundsOfLists(t *testing.T) {
	item := func(i int) string {
		text, err := json.Marshal(pod(fmt.Sprint("p", i), "1"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var written atomic.Int64
	for _, tt := range []struct {
		name   string
		bounds *Bounds
		serve  http.HandlerFunc
		says   string
	}{
		{"objects", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"metadata":{},"items":[`+item(0))
			for i := 1; ; i++ {
				if _, err := fmt.Fprint(w, ","+item(i)); err != nil {
					return
				}
			}
		}, "more than 10 objects"},
		{"memory", &Bounds{Objects: 1 << 30, Bytes: 1 << 20, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"metadata":{},"items":[`+item(0))
			for i := 1; ; i++ {
				if _, err := fmt.Fprint(w, ","+item(i)); err != nil {
					return
				}
			}
		}, "more than 1 MiB"},
		{"pages", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func() http.HandlerFunc {
			var i atomic.Int64
			return func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"metadata":{"continue":"on"},"items":[%s]}`, item(int(i.Add(1))))
			}
		}(), "more than 10 objects"},
		{"one object", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			flood(w, `{"metadata":{},"items":[{"metadata":{"name":"`, "a", &written)
		}, "too large"},
		{"spaces", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			flood(w, `{"metadata":{},"items":[`, " ", &written)
		}, "too large"},
		{"another field", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			flood(w, `{"other":[`, "{},", &written)
		}, "too large"},
		{"all of it", &Bounds{Objects: 1 << 30, Bytes: 1 << 30, List: 1 << 20, Object: 1 << 19}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"metadata":{},"items":[`+item(0))
			for i := 1; ; i++ {
				n, err := fmt.Fprint(w, ","+item(i))
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		}, "too large"},
		{"all pages", &Bounds{Objects: 1 << 30, Bytes: 1 << 30, List: 1 << 20, Object: 1 << 19}, func() http.HandlerFunc {
			var i atomic.Int64
			return func(w http.ResponseWriter, _ *http.Request) {
				n, _ := fmt.Fprintf(w, `{"metadata":{"continue":"on"},"items":[%s],"other":%q}`, item(int(i.Add(1))), strings.Repeat("a", 1<<18))
				written.Add(int64(n))
			}
		}(), "too large"},
		{"one name", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			flood(w, `{"metadata":{},"items":[`+item(0), ","+item(0), &written)
		}, "twice"},
		{"pages of one name", &Bounds{Objects: 10, Bytes: 1 << 30, List: 1 << 30, Object: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			n, _ := fmt.Fprintf(w, `{"metadata":{"continue":"on"},"items":[%s]}`, item(0))
			written.Add(int64(n))
		}, "twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			written.Store(0)
			client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") != "" {
					w.WriteHeader(http.StatusUnprocessableEntity)
					return
				}
				tt.serve(w, r)
			})
			failed := make(chan struct{}, 10)
			tt.bounds.Changed = func() { failed <- struct{}{} }
			cache := boundedCache(tt.bounds)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				cache.Follow(ctx, client, Query{Path: "/api/v1/pods"})
			}()
			select {
			case <-failed:
			case <-time.After(2 * time.Minute):
				t.Fatalf("it goes on; %v", cache.Failure())
			}
			if err := tt.bounds.Err(); !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want what says %q", err, tt.says)
			}
			if cache.Len() > 0 {
				t.Errorf("%d objects are kept of half a list", cache.Len())
			}
			cancel()
			<-ended
			if err := tt.bounds.Err(); err != nil || tt.bounds.objects != 0 || tt.bounds.bytes != 0 {
				t.Errorf("nothing is followed any more, and yet: %v, %d objects of %d bytes", err, tt.bounds.objects, tt.bounds.bytes)
			}
			if n := written.Load(); n > 16<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// What a cache holds stays counted while it lists anew, and when that fails. It may be
// told of as many other objects as it holds, by a list and by a watch that is one.
func TestBoundsOfFailedLists(t *testing.T) {
	pods := func(name string, n int) (text string) {
		var items []string
		for i := range n {
			text, err := json.Marshal(pod(fmt.Sprint(name, i), "1"))
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, string(text))
		}
		return strings.Join(items, ",")
	}
	var answer string
	client := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	bounds := &Bounds{Objects: 10, Bytes: 1 << 20, List: 1 << 20, Object: 1 << 20}
	query := Query{Path: "/api/v1/pods"}
	full, other := boundedCache(bounds), boundedCache(bounds)
	list := func(c *Cache[*corev1.Pod], text string) error {
		t.Helper()
		answer = text
		found, err := c.list(t.Context(), client, query, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var objects []any
		for _, o := range found.Items {
			objects = append(objects, o)
		}
		return (*sink[*corev1.Pod])(c).Replace(objects, "1")
	}
	expect := func(objects int) {
		t.Helper()
		var bytes int64
		for _, c := range []*Cache[*corev1.Pod]{full, other} {
			for _, o := range c.All() {
				bytes += weigh(o)
			}
		}
		if bounds.objects != objects || full.Len()+other.Len() != objects || bounds.bytes != bytes {
			t.Errorf("%d objects of %d bytes are counted, want %d of %d", bounds.objects, bounds.bytes, objects, bytes)
		}
	}
	if err := list(full, `{"items":[`+pods("a", 9)+`]}`); err != nil {
		t.Fatal(err)
	}
	expect(9)
	full.share.begin()
	if err := list(other, `{"items":[`+pods("o", 2)+`]}`); !errors.Is(err, ErrTooMuch) {
		t.Errorf("while it lists there is room for more: %v", err)
	}
	for _, half := range []string{"", `{"items":[`, `{"items":[` + pods("a", 2), `{"items":[` + pods("b", 9) + `,[`, `{"items":[` + pods("c", 11)} {
		if err := list(full, half); err == nil {
			t.Errorf("%.30s is a list", half)
		}
		expect(9)
		if err := list(other, `{"items":[`+pods("o", 2)+`]}`); !errors.Is(err, ErrTooMuch) {
			t.Errorf("after a failed list there is room for more: %v", err)
		}
		expect(9)
	}
	if err := list(full, `{"items":[`+pods("b", 10)+`]}`); err != nil {
		t.Errorf("it cannot be told of other objects: %v", err)
	}
	expect(10)
	if err := list(full, `{"items":[`+pods("b", 3)+`]}`); err != nil {
		t.Error(err)
	}
	expect(3)
	if err := list(other, `{"items":[`+pods("o", 7)+`]}`); err != nil {
		t.Error(err)
	}
	expect(10)

	// So does a list that fails at a later page.
	for i, page := range []string{"p", "q", "p"} {
		answer = `{"items":[` + pods(page, 1) + `]}`
		options := metav1.ListOptions{}
		if i > 0 {
			options.Continue = "on"
		}
		if _, err := full.list(t.Context(), client, query, options); errors.Is(err, errTwice) != (i == 2) || i < 2 && err != nil {
			t.Errorf("page %d: %v", i, err)
		}
	}
	expect(10)

	// A watch that begins with everything fails likewise.
	initial := true
	for range 3 {
		answer = event("ADDED", pod("d", "1")) + "\n" + event("ADDED", pod("d", "2")) + "\n" + event("ADDED", pod("e", "2")) + "\n"
		w, err := full.watch(t.Context(), client, query, metav1.ListOptions{SendInitialEvents: &initial})
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() {
			if _, ok := e.Object.(*corev1.Pod); !ok {
				t.Errorf("got %+v", e.Object)
			}
		}
		expect(10)
	}
	full.share.reset()
	other.share.reset()
	if bounds.objects != 0 || bounds.bytes != 0 {
		t.Errorf("%d objects of %d bytes are left", bounds.objects, bounds.bytes)
	}
}

// What is forgotten while its successor is on its way does not take that one out of the
// count.
func TestForgetWhileOneIsOnItsWay(t *testing.T) {
	bounds := &Bounds{Objects: 10, Bytes: 1 << 20, List: 1 << 20, Object: 1 << 20}
	cache := boundedCache(bounds)
	store := (*sink[*corev1.Pod])(cache)
	in, _ := cache.share.begin()
	if err := store.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	decoder := &events[*corev1.Pod]{
		body: io.NopCloser(nil), cache: cache, in: in,
		lines: bufio.NewScanner(strings.NewReader(event("ADDED", pod("a", "1")) + "\n" + event("MODIFIED", pod("a", "2")))),
	}
	for range 2 {
		_, next, err := decoder.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if o := cache.Get("n", "a"); o != nil {
			cache.Forget(o)
		}
		if err := store.Update(next); err != nil {
			t.Fatal(err)
		}
	}
	last := cache.Get("n", "a")
	if last == nil || bounds.objects != 1 || bounds.bytes != weigh(last) {
		t.Fatalf("%v is held; %d objects of %d bytes are counted", last, bounds.objects, bounds.bytes)
	}
	if cache.Forget(last); cache.Len() != 0 || bounds.objects != 0 || bounds.bytes != 0 {
		t.Errorf("%d objects of %d bytes are counted after all was forgotten", bounds.objects, bounds.bytes)
	}
}

// What is not to be kept any more goes, also if it is on its way still.
func TestKeepWhileOneIsOnItsWay(t *testing.T) {
	cache := NewCache(Kind[*corev1.Pod]{
		Fresh: func() *corev1.Pod { return &corev1.Pod{} },
		Keep:  func(p *corev1.Pod) bool { return p.ResourceVersion == "1" },
	})
	decoder := &events[*corev1.Pod]{
		body: io.NopCloser(nil), cache: cache,
		lines: bufio.NewScanner(strings.NewReader(event("ADDED", pod("a", "1")) + "\n" + event("MODIFIED", pod("a", "2")))),
	}
	_, added, err := decoder.Decode()
	if err != nil {
		t.Fatal(err)
	}
	kind, modified, err := decoder.Decode()
	if err != nil {
		t.Fatal(err)
	}
	store := (*sink[*corev1.Pod])(cache)
	if err := store.Add(added); err != nil {
		t.Fatal(err)
	}
	if kind == watch.Deleted {
		if err := store.Delete(modified); err != nil {
			t.Fatal(err)
		}
	}
	if cache.Len() != 0 {
		t.Errorf("%v is held after an event of type %s", cache.All(), kind)
	}
}

// A watch may not bring what a list may not. What was known stays, and the server is
// left alone for a while.
func TestBoundsOfWatches(t *testing.T) {
	store := &pods{listed: []corev1.Pod{pod("a", "1"), pod("b", "2")}, version: 2, events: make(chan string)}
	var requests atomic.Int64
	client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		store.serve(w, r)
	})
	changed := make(chan error, 100)
	bounds := &Bounds{Objects: 3, Bytes: 1 << 20, List: 1 << 20, Object: 1 << 20}
	bounds.Changed = func() { changed <- bounds.Err() }
	told := make(chan string, 100)
	cache := NewCache(Kind[*corev1.Pod]{
		Fresh:  func() *corev1.Pod { return &corev1.Pod{} },
		Keep:   func(p *corev1.Pod) bool { return !strings.HasPrefix(p.Name, "other") },
		Bounds: bounds,
		Changed: func(_, after *corev1.Pod) {
			if after != nil {
				told <- after.Name + after.ResourceVersion
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cache.Follow(ctx, client, Query{Path: "/api/v1/pods"})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	expect := func(names ...string) {
		t.Helper()
		for range names {
			select {
			case got := <-told:
				if !strings.Contains(strings.Join(names, " "), got) {
					t.Fatalf("told of %s, want %v", got, names)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("not told of all of %v: %v", names, cache.Failure())
			}
		}
	}
	expect("a1", "b2")
	for i := range 100 { // that are not kept
		store.events <- event("ADDED", pod(fmt.Sprint("other", i), "3"))
	}
	for i := range 100 { // in each other's place
		store.events <- event("ADDED", pod("c", fmt.Sprint(4+i)))
		expect("c" + fmt.Sprint(4+i))
	}
	store.events <- event("DELETED", pod("b", "200"))
	store.events <- event("ADDED", pod("d", "201"))
	expect("d201")
	if cache.Forget(cache.Get("n", "d")); cache.Get("n", "d") != nil || cache.Len() != 2 {
		t.Errorf("%v after d was forgotten", cache.All())
	}
	store.events <- event("ADDED", pod("e", "202"))
	expect("e202")
	store.events <- event("ADDED", pod("f", "203"))
	select {
	case err := <-changed:
		if !errors.Is(err, ErrTooMuch) {
			t.Fatalf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a fourth is taken")
	}
	if cache.Len() != 3 || cache.Get("n", "f") != nil {
		t.Errorf("%v are kept", cache.All())
	}
	before := requests.Load()
	if _, err := cache.list(ctx, client, Query{Path: "/api/v1/pods"}, metav1.ListOptions{}); !errors.Is(err, ErrTooMuch) || requests.Load() != before {
		t.Errorf("it is asked at once: %v", err)
	}
	// After that time it is asked, and all is well again.
	bounds.mu.Lock()
	bounds.until = time.Time{}
	bounds.mu.Unlock()
	select {
	case err := <-changed:
		if err != nil {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("it is not asked again: %v", cache.Failure())
	}
}

// What is told of a list may be forgotten while the rest is still being told.
func TestForgetWhileOneIsTold(t *testing.T) {
	var cache *Cache[*corev1.Pod]
	var forgetting sync.WaitGroup
	cache = NewCache(Kind[*corev1.Pod]{
		Fresh:   func() *corev1.Pod { return &corev1.Pod{} },
		Changed: func(_, after *corev1.Pod) { forgetting.Go(func() { cache.Forget(after) }) },
	})
	var listed []any
	for i := range 200 {
		listed = append(listed, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i)}})
	}
	if err := (*sink[*corev1.Pod])(cache).Replace(listed, "1"); err != nil {
		t.Fatal(err)
	}
	if forgetting.Wait(); cache.Len() != 0 {
		t.Errorf("%d are left", cache.Len())
	}
}

// An API server that is trusted is bounded, too, by what it sends for one object.
func TestEndlessObject(t *testing.T) {
	for _, begin := range []string{"", `{"metadata":`, `{"metadata":{},"items":[`, `{"items":[{"metadata":{"name":"`, `{"items":[],"x":"`} {
		var written atomic.Int64
		client := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { flood(w, begin, "    ", &written) })
		body, err := client.rest.Get().AbsPath("/api/v1/pods").Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cache := NewCache(Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }})
		page := &boundedBody{ReadCloser: body, left: maxList}
		if err := cache.readList(page, 1<<20, nil, &list[*corev1.Pod]{}); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%q without an end: %v", begin, err)
		}
		if read := maxList - page.left; read > 3<<20 {
			t.Errorf("%q without an end: %d bytes were read", begin, read)
		}
		_ = body.Close()
	}
}

// What an API server says when it refuses is bounded, too.
func TestEndlessRefusal(t *testing.T) {
	var written atomic.Int64
	client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		flood(w, `{"kind":"Status","apiVersion":"v1","message":"`, "no ", &written)
	})
	cache := NewCache(Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }})
	query := Query{Path: "/api/v1/pods"}
	if _, err := cache.watch(t.Context(), client, query, metav1.ListOptions{}); err == nil {
		t.Error("it can be watched")
	}
	if _, err := cache.list(t.Context(), client, query, metav1.ListOptions{}); err == nil {
		t.Error("it can be listed")
	}
	if err := client.Get(t.Context(), query.Path, nil); err == nil {
		t.Error("it can be read")
	}
	if n := written.Load(); n > 48<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

func TestWeigh(t *testing.T) {
	small := weigh(&corev1.Event{})
	for name, o := range map[string]*corev1.Event{
		"text":   {Message: strings.Repeat("a", 1<<20)},
		"list":   {ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, (1<<20)/int(reflect.TypeFor[metav1.ManagedFieldsEntry]().Size()))}},
		"behind": {Series: &corev1.EventSeries{}, Related: &corev1.ObjectReference{Name: strings.Repeat("a", 1<<20)}},
	} {
		if got := weigh(o) - small; got < 1<<20-1024 || got > 1<<20+1024 {
			t.Errorf("%s: a MiB weighs %d", name, got)
		}
	}
	labels := make(map[string]string)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool has goes with the second
	runtime.ReadMemStats(&before)
	for i := range 10_000 {
		labels[fmt.Sprintf("label-%06d", i)] = "value"
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	weighs := weigh(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Labels: labels}}) - small
	if real := int64(after.HeapAlloc - before.HeapAlloc); weighs < real/4 || weighs > 4*real {
		t.Errorf("a map of %d bytes weighs %d", real, weighs)
	}
	if got := weigh(&corev1.Event{FirstTimestamp: metav1.Now()}); got != small {
		t.Errorf("a time weighs %d", got-small)
	}
}
