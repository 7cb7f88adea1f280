package vnode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"liqo.io/agent/peer"
)

// fake is as much of an API server as the nodes need, in memory. It is an
// http.RoundTripper, so that it works in a synctest bubble.
type fake struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]any // by path
	removed  map[string]map[string]any // that are gone, as they were last
	watchers map[*watcher]bool
	delay    time.Duration   // of every answer
	down     bool            // every request fails
	blocked  map[string]bool // pods that a budget protects, by path
	stuck    bool            // pods that are deleted do not end
	confined bool            // nobody may annotate nodes
	// annotations is how often that was tried.
	annotations int
	writes      []string             // method and path of every change
	leases      map[string]time.Time // when each was renewed last
	heartbeat   time.Duration        // the agent's setting
	// inherited are the Leases that the running agent has not renewed. They go with their nodes, by
	// garbage collection: the agent may not even have seen the node.
	inherited map[string]bool
	back      time.Duration // how much the agent's clock is late
	wrong     []string      // what must not happen

	names map[peer.ClusterID]string // what the agent remembers beyond its end
}

type watcher struct {
	collection string
	match      func(map[string]any) bool
	pipe       *io.PipeWriter
	queue      chan []byte
}

func newFake() *fake {
	return &fake{objects: make(map[string]map[string]any), removed: make(map[string]map[string]any), watchers: make(map[*watcher]bool), blocked: make(map[string]bool), leases: make(map[string]time.Time),
		inherited: make(map[string]bool), names: make(map[peer.ClusterID]string), heartbeat: heartbeat}
}

// NodeName implements Names.
func (f *fake) NodeName(id peer.ClusterID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[id]
}

// NameNode implements Names.
func (f *fake) NameNode(_ context.Context, id peer.ClusterID, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, taken := range f.names {
		if taken == name && other != id {
			return false, nil
		}
	}
	f.names[id] = name
	return true, nil
}

// pathOf returns the path of the node of a provider, "" when there is none. f.mu is
// held.
func (f *fake) pathOf(id peer.ClusterID) string {
	for path, o := range f.objects {
		if strings.HasPrefix(path, nodesPath+"/") && textAt(sub(o, "spec"), "providerID") == providerID(id) {
			return path
		}
	}
	return ""
}

// now is the agent's clock.
func (f *fake) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(-f.back)
}

func (f *fake) config() *rest.Config { return &rest.Config{Host: "http://fake", Transport: f} }

// split returns the collection and the name that a path is of, and the subresource.
func split(path string) (collection, name, sub string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := len(parts) - 1; i >= 0; i-- {
		switch parts[i] {
		case "nodes", "pods", "leases", pluralPolicies, pluralBindings, pluralWebhooks:
			collection = "/" + strings.Join(parts[:i+1], "/")
			if len(parts) > i+1 {
				name = parts[i+1]
			}
			if len(parts) > i+2 {
				sub = parts[i+2]
			}
			return collection, name, sub
		}
	}
	return path, "", ""
}

// RoundTrip implements http.RoundTripper.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return respond(r, http.StatusServiceUnavailable, status(503, "ServiceUnavailable", "down")), nil
	}
	collection, name, sub := split(r.URL.Path)
	query := r.URL.Query()
	if strings.HasPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1") && name == "" && !strings.Contains(r.URL.Path, "mutating") {
		return respond(r, 200, map[string]any{"resources": []any{map[string]any{"name": pluralPolicies}}}), nil
	}
	if r.Method == http.MethodGet && name == "" {
		match := matcher(query.Get("fieldSelector"))
		switch {
		case query.Get("sendInitialEvents") != "":
			return respond(r, 422, status(422, "Invalid", "not supported")), nil
		case query.Get("watch") != "":
			return f.watch(r, collection, match), nil
		}
		items := []any{}
		for _, path := range slices.Sorted(maps.Keys(f.objects)) {
			if c, _, _ := split(path); inCollection(c, collection) && match(f.objects[path]) {
				items = append(items, f.objects[path])
			}
		}
		return respond(r, 200, map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(f.version)}, "items": items}), nil
	}
	code, out := f.do(r, collection, name, sub, body)
	return respond(r, code, out), nil
}

// inCollection: the pods of all namespaces are one collection too.
func inCollection(of, collection string) bool {
	return of == collection || collection == podsPath && strings.HasSuffix(of, "/pods")
}

func matcher(selector string) func(map[string]any) bool {
	return func(o map[string]any) bool {
		for _, term := range strings.FieldsFunc(selector, func(r rune) bool { return r == ',' }) {
			field, value, not := strings.Cut(term, "!=")
			if !not {
				field, value, _ = strings.Cut(term, "=")
			}
			got := ""
			switch field {
			case "metadata.name":
				got = textAt(o, "metadata", "name")
			case "spec.nodeName":
				got = textAt(o, "spec", "nodeName")
			}
			if (got == value) == not {
				return false
			}
		}
		return true
	}
}

func textAt(o map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		o, _ = o[name].(map[string]any)
	}
	s, _ := o[path[len(path)-1]].(string)
	return s
}

func sub(o map[string]any, name string) map[string]any {
	m, ok := o[name].(map[string]any)
	if !ok {
		m = make(map[string]any)
		o[name] = m
	}
	return m
}

func status(code int, reason, message string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
}

func respond(r *http.Request, code int, object any) *http.Response {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}
}

func (f *fake) watch(r *http.Request, collection string, match func(map[string]any) bool) *http.Response {
	reader, writer := io.Pipe()
	w := &watcher{collection: collection, match: match, pipe: writer, queue: make(chan []byte, 10_000)}
	f.watchers[w] = true
	// What happened since the list, in any order: an object is in one of the two.
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for kind, objects := range map[string]map[string]map[string]any{"MODIFIED": f.objects, "DELETED": f.removed} {
		for path, o := range objects {
			v, _ := strconv.Atoi(textAt(o, "metadata", "resourceVersion"))
			if c, _, _ := split(path); inCollection(c, collection) && match(o) && v > since {
				w.send(kind, o)
			}
		}
	}
	go func() {
		defer func() {
			f.mu.Lock()
			delete(f.watchers, w)
			f.mu.Unlock()
			writer.Close()
		}()
		for {
			select {
			case event := <-w.queue:
				if _, err := writer.Write(event); err != nil {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r}
}

func (w *watcher) send(kind string, o map[string]any) {
	text, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		panic(err)
	}
	w.queue <- append(text, '\n')
}

// store puts an object, nil to remove it, and tells watchers. f.mu is held.
func (f *fake) store(path string, o map[string]any) {
	before := f.objects[path]
	f.version++
	kind, told := "MODIFIED", o
	switch {
	case o == nil:
		kind, told = "DELETED", clone(before)
		delete(f.objects, path)
		f.removed[path] = told
	case before == nil:
		kind = "ADDED"
	}
	sub(told, "metadata")["resourceVersion"] = strconv.Itoa(f.version)
	if o != nil {
		f.objects[path] = o
		delete(f.removed, path)
	}
	collection, name, _ := split(path)
	if o == nil && collection == nodesPath && f.inherited[name] && f.objects[leasePath+"/"+name] != nil {
		f.store(leasePath+"/"+name, nil)
	}
	for w := range f.watchers {
		if inCollection(collection, w.collection) && w.match(told) {
			w.send(kind, told)
		}
	}
}

// clone copies an object that is as JSON decodes it.
func clone(o map[string]any) map[string]any { return runtime.DeepCopyJSON(o) }

// do does what is no list or watch.
func (f *fake) do(r *http.Request, collection, name, subresource string, body []byte) (int, map[string]any) {
	var in map[string]any
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			return 400, status(400, "BadRequest", err.Error())
		}
	}
	path := collection + "/" + name
	if r.Method == http.MethodPost && subresource == "" {
		path = collection + "/" + textAt(in, "metadata", "name")
		if f.objects[path] != nil {
			return 409, status(409, "AlreadyExists", "it exists")
		}
		f.note(r.Method, path)
		return 201, f.create(path, in)
	}
	o := f.objects[path]
	if o == nil {
		return 404, status(404, "NotFound", path+" not found")
	}
	uid := textAt(o, "metadata", "uid")
	o = clone(o)
	switch {
	case r.Method == http.MethodGet:
		return 200, o
	case r.Method == http.MethodPost: // eviction
		f.evicting(o)
		if f.blocked[path] {
			out := status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
			out["details"] = map[string]any{"causes": []any{map[string]any{"reason": "DisruptionBudget", "message": "The disruption budget one needs 1 healthy pods and has 1 currently"}}}
			return 429, out
		}
		f.end(path, o, false)
		return 201, nil
	case r.Method == http.MethodDelete:
		preconditions, _ := in["preconditions"].(map[string]any)
		if want := textAt(preconditions, "uid"); want != "" && want != uid {
			return 409, status(409, "Conflict", "another uid")
		}
		f.note(r.Method, path)
		if strings.HasSuffix(collection, "/pods") {
			grace, given := in["gracePeriodSeconds"].(float64)
			f.end(path, o, given && grace == 0)
			return 200, nil
		}
		f.store(path, nil)
		return 200, nil
	case r.Method == http.MethodPut:
		maps.Copy(o, in)
	case strings.Contains(r.Header.Get("Content-Type"), "apply"):
		if want := textAt(in, "metadata", "uid"); want != "" && want != uid {
			return 409, status(409, "Conflict", "another uid")
		}
		f.apply(o, in, subresource)
	default:
		metadata, _ := in["metadata"].(map[string]any)
		if want := textAt(metadata, "resourceVersion"); want != "" && want != textAt(o, "metadata", "resourceVersion") {
			return 409, status(409, "Conflict", "another version")
		}
		if want := textAt(metadata, "uid"); want != "" && want != uid {
			return 409, status(409, "Conflict", "another uid")
		}
		if metadata["annotations"] != nil && f.confined {
			f.annotations++
			return 403, status(403, "Forbidden", "no annotations")
		}
		mergeInto(o, in)
	}
	if reflect.DeepEqual(f.objects[path], o) {
		return 200, o
	}
	f.note(r.Method, path)
	f.store(path, o)
	return 200, clone(o)
}

func mustMarshal(o any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return text
}

// create stores a new object. f.mu is held.
func (f *fake) create(path string, o map[string]any) map[string]any {
	var made map[string]any
	if err := json.Unmarshal(mustMarshal(o), &made); err != nil {
		panic(err)
	}
	o = made
	sub(o, "metadata")["uid"] = fmt.Sprintf("uid-%d", f.version+1)
	f.store(path, o)
	return clone(o)
}

func (f *fake) note(method, path string) {
	if strings.HasPrefix(path, leasePath) {
		name := strings.TrimPrefix(path, leasePath+"/")
		f.leases[name] = time.Now()
		delete(f.inherited, name)
	}
	f.writes = append(f.writes, method+" "+path)
	if path == nodePath(foreign) {
		f.wrong = append(f.wrong, method+" of a node that is not the agent's")
	}
}

// evicting checks that the pod's node is cordoned.
func (f *fake) evicting(pod map[string]any) {
	node := f.objects[nodesPath+"/"+textAt(pod, "spec", "nodeName")]
	if node == nil {
		return
	}
	if cordoned, _ := sub(node, "spec")["unschedulable"].(bool); !cordoned {
		f.wrong = append(f.wrong, "eviction from a node that is not cordoned")
	}
}

// end ends a pod, after a second unless it is to be at once. f.mu is held.
func (f *fake) end(path string, o map[string]any, atOnce bool) {
	if atOnce {
		f.store(path, nil)
		return
	}
	if textAt(o, "metadata", "deletionTimestamp") == "" {
		sub(o, "metadata")["deletionTimestamp"] = "2026-11-22T00:00:00Z"
		f.store(path, o)
	}
	if f.stuck {
		return
	}
	uid := textAt(o, "metadata", "uid")
	time.AfterFunc(time.Second, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if now := f.objects[path]; now != nil && textAt(now, "metadata", "uid") == uid {
			f.store(path, nil)
		}
	})
}

func mergeInto(o, patch map[string]any) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(o, key)
		case map[string]any:
			mergeInto(sub(o, key), v)
		default:
			o[key] = v
		}
	}
}

// apply does a server-side apply as the agent's manager, in as far as nodes need
// it: conditions and addresses are merged by type, other lists are one value.
func (f *fake) apply(o, in map[string]any, subresource string) {
	in = clone(in)
	delete(in, "apiVersion")
	delete(in, "kind")
	metadata := sub(in, "metadata")
	delete(metadata, "name")
	delete(metadata, "uid")
	delete(metadata, "creationTimestamp")
	managed, _ := sub(o, "metadata")["managedFields"].([]any)
	var entry map[string]any
	for _, m := range managed {
		if m := m.(map[string]any); m["manager"] == manager && textAt(m, "subresource") == subresource {
			entry = m
		}
	}
	if entry == nil {
		entry = map[string]any{"manager": manager, "operation": "Apply", "subresource": subresource}
		sub(o, "metadata")["managedFields"] = append(managed, entry)
	}
	owned := fieldsOf(in)
	if old, ok := entry["fieldsV1"].(map[string]any); ok {
		disown(o, old, owned)
	}
	entry["fieldsV1"] = owned
	setInto(o, in)
}

func keyOf(list []any) bool {
	for _, e := range list {
		if m, ok := e.(map[string]any); !ok || m["type"] == nil {
			return false
		}
	}
	return len(list) > 0
}

func fieldsOf(in map[string]any) map[string]any {
	out := make(map[string]any)
	for key, value := range in {
		switch v := value.(type) {
		case map[string]any:
			out["f:"+key] = fieldsOf(v)
		case []any:
			below := make(map[string]any)
			if keyOf(v) {
				for _, e := range v {
					below[fmt.Sprintf(`k:{"type":"%v"}`, e.(map[string]any)["type"])] = map[string]any{}
				}
			}
			out["f:"+key] = below
		default:
			out["f:"+key] = map[string]any{}
		}
	}
	return out
}

// disown removes what was owned and is not any more.
func disown(o, old, owned map[string]any) {
	for field, below := range old {
		key, isField := strings.CutPrefix(field, "f:")
		if !isField {
			continue
		}
		next, still := owned[field].(map[string]any)
		below := below.(map[string]any)
		if inner, ok := o[key].(map[string]any); ok && len(below) > 0 {
			if next == nil {
				next = map[string]any{}
			}
			disown(inner, below, next)
		} else if !still && (key != "unschedulable" || o["personCordoned"] == nil) {
			delete(o, key)
		}
	}
}

func setInto(o, in map[string]any) {
	for key, value := range in {
		switch v := value.(type) {
		case map[string]any:
			setInto(sub(o, key), v)
		case []any:
			if old, _ := o[key].([]any); keyOf(v) && keyOf(old) {
				for _, e := range v {
					i := slices.IndexFunc(old, func(o any) bool { return o.(map[string]any)["type"] == e.(map[string]any)["type"] })
					if i >= 0 {
						old[i] = e
					} else {
						old = append(old, e)
					}
				}
				o[key] = old
				continue
			}
			o[key] = v
		default:
			o[key] = v
		}
	}
}
