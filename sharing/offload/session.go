package offload

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// metadata is an object of which only the metadata is kept.
type metadata = metav1.PartialObjectMetadata

// session is one connection to the local API server.
type session struct {
	o          *Offload
	local      *kube.Client
	namespaces *kube.Cache[*metadata] // all there are here
	woken      chan struct{}          // the providers changed; capacity 1
	running    sync.WaitGroup
	ctx        context.Context // of run, for the bundles, which lines share

	mu      sync.Mutex
	lines   map[peer.ClusterID]*line
	bundles map[bundleKey]*bundle
}

func newSession(o *Offload, local *kube.Client) *session {
	s := &session{
		o: o, local: local,
		woken:   make(chan struct{}, 1),
		lines:   make(map[peer.ClusterID]*line),
		bundles: make(map[bundleKey]*bundle),
	}
	s.namespaces = kube.NewCache(kube.Kind[*metadata]{
		Fresh: func() *metadata { return &metadata{} },
		Trim:  trimMetadata,
		Changed: func(before, after *metadata) {
			for _, l := range s.all() {
				l.namespaceChanged(before, after)
			}
		},
	})
	return s
}

// trimMetadata leaves what this package needs of any object.
func trimMetadata(m *metadata) {
	m.ManagedFields, m.Labels, m.OwnerReferences, m.Finalizers = nil, nil, nil, nil
	for name := range m.Annotations {
		if !isRecord(name) {
			delete(m.Annotations, name)
		}
	}
}

// run works until ctx ends. Every goroutine it starts has ended when it returns.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	s.ctx = ctx
	s.running.Go(func() { s.namespaces.Follow(ctx, s.local, kube.Query{Path: "/api/v1/namespaces"}) })
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.namespaces.Synced():
	}
	s.o.attach(s)
	defer s.o.attach(nil)
	defer func() {
		for _, l := range s.all() {
			s.end(l)
		}
	}()
	for {
		s.adjust(ctx)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.woken:
		}
	}
}

// adjust makes the lines those of the providers.
func (s *session) adjust(ctx context.Context) {
	providers := s.o.snapshot()
	for _, l := range s.all() {
		p, there := providers[l.id]
		if !there || p.Node != l.node || p.Remote != l.remote {
			s.end(l)
		}
		if !there {
			l.dropRecords(ctx)
		}
	}
	for id, p := range providers {
		s.mu.Lock()
		l := s.lines[id]
		if l == nil && p.Node != "" && p.Remote != nil {
			s.lines[id] = s.begin(ctx, p)
		}
		s.mu.Unlock()
		if l != nil {
			l.set(p)
		}
	}
}

// begin starts the work for a provider.
func (s *session) begin(ctx context.Context, p Provider) *line {
	l := newLine(s, p)
	ctx, l.cancel = context.WithCancel(ctx)
	s.running.Go(func() {
		defer close(l.done)
		l.run(ctx)
	})
	return l
}

// end ends it and waits until it has.
func (s *session) end(l *line) {
	l.cancel()
	<-l.done
	s.mu.Lock()
	delete(s.lines, l.id)
	s.mu.Unlock()
	s.o.cfg.Changed(l.id)
}

// all returns all lines.
func (s *session) all() []*line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.lines))
}
