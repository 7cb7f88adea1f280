package offload

import (
	"context"
	"maps"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// metadata is an object of which only the metadata is kept.
type metadata = metav1.PartialObjectMetadata

// session is one connection to the local API server.
type session struct {
	o          *Offload
	local      *kube.Client
	namespaces *kube.Cache[*metadata] // all local ones
	woken      chan struct{}          // the providers changed; capacity 1
	running    sync.WaitGroup
	ctx        context.Context // of run, for the bundles, which controllers share

	mu          sync.Mutex
	controllers map[peer.ClusterID]*controller
	bundles     map[bundleKey]*bundle
}

func newSession(o *Offload, local *kube.Client) *session {
	s := &session{
		o: o, local: local,
		woken:       make(chan struct{}, 1),
		controllers: make(map[peer.ClusterID]*controller),
		bundles:     make(map[bundleKey]*bundle),
	}
	s.namespaces = kube.NewCache(kube.Kind[*metadata]{
		Fresh: func() *metadata { return &metadata{} },
		Trim:  trimMetadata,
		Changed: func(before, after *metadata) {
			for _, pc := range s.all() {
				pc.namespaceChanged(before, after)
			}
		},
	})
	return s
}

// trimMetadata keeps what this package needs of any object.
func trimMetadata(m *metadata) {
	m.ManagedFields, m.OwnerReferences, m.Finalizers = nil, nil, nil
	for name := range m.Labels {
		if name != workload.LabelEnabled && name != workload.LabelTokens && name != discoveryv1.LabelServiceName {
			delete(m.Labels, name)
		}
	}
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
		for _, pc := range s.all() {
			s.end(pc)
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

// adjust makes the set of controllers equal to the set of providers.
func (s *session) adjust(ctx context.Context) {
	providers := s.o.snapshot()
	for _, pc := range s.all() {
		p, there := providers[pc.id]
		if !there || p.Node != pc.node || p.Remote != pc.remote {
			s.end(pc)
		}
		if !there {
			pc.dropRecords(ctx)
		}
	}
	for id, p := range providers {
		s.mu.Lock()
		pc := s.controllers[id]
		if pc == nil && p.Node != "" && p.Remote != nil {
			s.controllers[id] = s.begin(ctx, p)
		}
		s.mu.Unlock()
		if pc != nil {
			pc.set(p)
		}
	}
}

// begin starts the controller of a provider.
func (s *session) begin(ctx context.Context, p Provider) *controller {
	pc := newController(s, p)
	ctx, pc.cancel = context.WithCancel(ctx)
	s.running.Go(func() {
		defer close(pc.done)
		pc.run(ctx)
	})
	return pc
}

// end stops a controller, and waits for it.
func (s *session) end(pc *controller) {
	pc.cancel()
	<-pc.done
	s.mu.Lock()
	delete(s.controllers, pc.id)
	s.mu.Unlock()
	s.o.cfg.Changed(pc.id)
}

// all returns all controllers.
func (s *session) all() []*controller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.controllers))
}
