package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// reverter puts a store back to how it was, so that one control plane can serve many tests. It works on
// the store and not through an API server: nothing is left out, whatever its kind, and no finalizer
// or missing controller holds it up. API servers follow by their watches.
//
//	POST /mark     remembers the store as it is
//	POST /compare  answers with the keys that are different from what was marked
//	POST /revert   does the same, and makes it so again, in one transaction
type reverter struct {
	store *clientv3.Client

	mu     sync.Mutex
	marked map[string][]byte
}

func (r *reverter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	answer := []string{} // never null
	switch req.Method + " " + req.URL.Path {
	case "POST /mark":
		r.marked, err = r.read(req.Context())
	case "POST /compare":
		answer, _, err = r.compare(req.Context())
	case "POST /revert":
		var ops []clientv3.Op
		answer, ops, err = r.compare(req.Context())
		if err == nil && len(ops) > 0 {
			_, err = r.store.Txn(req.Context()).Then(ops...).Commit()
		}
	default:
		http.NotFound(w, req)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // whoever asked is gone
}

// read returns everything in the store but what an API server keeps there for itself.
func (r *reverter) read(ctx context.Context) (map[string][]byte, error) {
	all, err := r.store.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	out := make(map[string][]byte, len(all.Kvs))
	for _, kv := range all.Kvs {
		if key := string(kv.Key); !ownedByServer(key) {
			out[key] = kv.Value
		}
	}
	return out, nil
}

// ownedByServer reports whether an API server writes a key by itself, again and again: that it is
// alive, and where.
func ownedByServer(key string) bool {
	switch key {
	case "/registry/services/specs/default/kubernetes", "/registry/services/endpoints/default/kubernetes", "/registry/endpointslices/default/kubernetes":
		return true
	}
	return strings.HasPrefix(key, "/registry/masterleases/") || strings.HasPrefix(key, "/registry/leases/kube-system/apiserver-")
}

// compare returns the keys that are different from what was marked, and what makes them the same.
func (r *reverter) compare(ctx context.Context) ([]string, []clientv3.Op, error) {
	if r.marked == nil {
		return nil, nil, errors.New("nothing was marked: POST /mark first")
	}
	now, err := r.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	keys, ops := []string{}, []clientv3.Op(nil)
	for key := range now {
		if _, ok := r.marked[key]; !ok {
			keys, ops = append(keys, key), append(ops, clientv3.OpDelete(key))
		}
	}
	for key, value := range r.marked {
		if had, ok := now[key]; !ok || !bytes.Equal(had, value) {
			keys, ops = append(keys, key), append(ops, clientv3.OpPut(key, string(value)))
		}
	}
	return keys, ops, nil
}
