package liqo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	workers               = 8
	retryFirst, retryMax  = 100 * time.Millisecond, 15 * time.Second
	shownFailures         = 4                // of one step in a row
	keysFor               = 30 * time.Second // that the key pair is not read again
	interval              = 30 * time.Second // between two calls of a provider when there is nothing to do
	kubeconfigPrefix      = "kubeconfig-"
	labelReplicated       = "liqo.io/replicated"
	pluralRenews          = "renews"
	conditionActive       = "Active"
	conditionDrained      = "Drained"
	annotationUnreachable = "liqo.io/foreign-cluster-permanently-unreachable"
	labelControlPlane     = "node-role.kubernetes.io/control-plane" // of the nodes whose address Liqo tells
	namespacesPath        = "/api/v1/namespaces"
	manager               = "liqo-agent-liqo"
	classDefault          = "default"
	serviceNodePort       = "NodePort"
	protocolUDP           = "UDP"
)

// asksAgain is the pause between calls of a provider that says nothing new, or does not answer.
var asksAgain = work.Backoff{First: time.Second, Max: interval}

// job is one direction of a pair. A consumer waits for the answer of its provider, and two clusters
// that consume each other must not wait for each other.
type job struct {
	id    peer.ClusterID
	serve bool
}

// session is one connection to an API server with Liqo.
type session struct {
	*Liqo
	client *kube.Client
	found  served
	queue  *work.Queue[job]
	need   func() // starts to follow what only pairs need
	start  chan struct{}

	maps        *kube.Cache[*configMap]
	deployments *kube.Cache[*deployment]
	namespaces  *kube.Cache[*object]

	secrets, tenants, identities, slices, nodes, renews *kube.Cache[*object]
	foreign                                             *kube.Cache[*checked]
	planes                                              *kube.Cache[*controlPlane]

	// What connects networks, where Liqo does.
	configurations, servers, clients, publicKeys *kube.Cache[*object]
	networks, serverTemplates, clientTemplates   *kube.Cache[*object]

	failed     map[job]int // failures in a row; guarded by Liqo.mu
	describing sync.Mutex  // what is seen last is said last

	mu        sync.Mutex
	namespace string         // of Liqo
	keys      *document.Keys // of this cluster
	keysRead  time.Time
}

func newSession(l *Liqo, c *kube.Client, found served) *session {
	s := &session{Liqo: l, client: c, found: found, start: make(chan struct{}), failed: make(map[job]int)}
	s.need = sync.OnceFunc(func() { close(s.start) })
	s.queue = work.New(work.Config[job]{Backoff: work.Backoff{First: retryFirst, Max: retryMax}, Observe: func(j job, a work.Attempt) {
		if a.Err != nil {
			l.cfg.Logger.Debug("the exchange with a peer's Liqo failed, trying again", "peer", j.id, "in", a.Next, "error", a.Err)
		}
		if apierrors.IsForbidden(a.Err) {
			l.Look() // the rights may be gone, and watches go on without them
		}
	}})
	failed := func(err error) {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			l.Look()
		}
	}
	s.maps = kube.NewCache(kube.Kind[*configMap]{Fresh: func() *configMap { return &configMap{} }, Failed: failed, Changed: func(_, _ *configMap) { s.describe() }})
	s.deployments = kube.NewCache(kube.Kind[*deployment]{Fresh: func() *deployment { return &deployment{} }, Failed: failed, Changed: func(_, _ *deployment) { s.describe() }})
	objects := func() *kube.Cache[*object] {
		return kube.NewCache(kube.Kind[*object]{
			Fresh: func() *object { return &object{} }, Trim: trim, Failed: failed, Index: func(o *object) []string { return index(o) },
			Changed: func(before, after *object) { s.changed(before, after) },
		})
	}
	s.namespaces, s.secrets, s.tenants, s.identities, s.slices, s.nodes, s.renews = objects(), objects(), objects(), objects(), objects(), objects(), objects()
	s.configurations, s.servers, s.clients, s.publicKeys = objects(), objects(), objects(), objects()
	own := func() *kube.Cache[*object] {
		return kube.NewCache(kube.Kind[*object]{Fresh: func() *object { return &object{} }, Trim: trim, Failed: failed, Changed: func(_, _ *object) { s.addAll() }})
	}
	s.networks, s.serverTemplates, s.clientTemplates = own(), own(), own()
	s.planes = kube.NewCache(kube.Kind[*controlPlane]{
		Fresh: func() *controlPlane { return &controlPlane{} }, Failed: failed,
		Changed: func(before, after *controlPlane) {
			if before == nil || after == nil || !slices.Equal(before.Status.Addresses, after.Status.Addresses) {
				s.addAll()
			}
		},
	})
	s.foreign = kube.NewCache(kube.Kind[*checked]{
		Fresh: func() *checked { return &checked{} }, Failed: failed,
		Changed: func(before, after *checked) {
			for _, o := range []*checked{before, after} {
				if o != nil {
					s.concerns(document.ClusterID(o.Name))
				}
			}
		},
	})
	return s
}

// cares reports whether something here is in care for a peer.
func (s *session) cares(id peer.ClusterID) bool { return len(s.namespaces.By(byPeer(id))) > 0 }

// run starts what works until ctx ends, and returns.
func (s *session) run(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() { s.maps.Follow(ctx, s.client, kube.Query{Path: configMapsPath, Labels: clusterIDs}) })
	running.Go(func() {
		s.deployments.Follow(ctx, s.client, kube.Query{Path: deploymentsPath, Labels: parts})
	})
	running.Go(func() {
		s.namespaces.Follow(ctx, s.client, kube.Query{Path: namespacesPath, Labels: document.LabelTenantNamespace + "=true"})
	})
	running.Go(func() {
		if !await(ctx, s.maps.Synced()) || !await(ctx, s.deployments.Synced()) || !await(ctx, s.namespaces.Synced()) {
			return
		}
		s.describe()
		if slices.ContainsFunc(s.namespaces.All(), func(n *object) bool { return inCare(n) != "" }) {
			s.need()
		}
		s.attach(ctx) // from here on new pairs need it
		if !await(ctx, s.start) {
			return
		}
		s.exchange(ctx, running)
	})
}

// attach has Drive and Answer reach the session until ctx ends. Whoever waits for what is known now is told.
func (s *session) attach(ctx context.Context) {
	s.Liqo.mu.Lock()
	if ctx.Err() != nil { // nobody would take it away again
		s.Liqo.mu.Unlock()
		return
	}
	s.Liqo.session, s.settled = s, true
	if len(s.pairs) > 0 {
		s.need()
	}
	for id, p := range s.pairs {
		// What was not wanted while nobody could look may be wanted after all: the caller says it again.
		if p.reset(false); p.desired.Consume != nil && !p.desired.Consume.Wanted {
			p.desired.Consume = nil
		}
		if !p.serves() {
			p.desired.Serve = nil
		}
		s.add(id)
	}
	s.Liqo.mu.Unlock()
	s.cfg.Found()
}

func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// exchange follows what pairs need, and works on them until ctx ends.
func (s *session) exchange(ctx context.Context, running *sync.WaitGroup) {
	follow := func(cache *kube.Cache[*object], path string) {
		running.Go(func() { cache.Follow(ctx, s.client, kube.Query{Path: path, Labels: document.LabelRemoteCluster}) })
	}
	authentication := func(plural string) string { return api.Collection(document.Authentication, plural) }
	follow(s.secrets, "/api/v1/secrets")
	follow(s.tenants, authentication(document.PluralTenants))
	follow(s.identities, authentication(document.PluralIdentities))
	follow(s.slices, authentication(document.PluralResourceSlices))
	follow(s.nodes, api.Collection(document.Offloading, document.PluralVirtualNodes))
	running.Go(func() {
		s.foreign.Follow(ctx, s.client, kube.Query{Path: api.Collection(document.Core, api.PluralForeignClusters)})
	})
	running.Go(func() { s.planes.Follow(ctx, s.client, kube.Query{Path: "/api/v1/nodes", Labels: labelControlPlane}) })
	synced := []<-chan struct{}{s.planes.Synced(), s.secrets.Synced(), s.tenants.Synced(), s.identities.Synced(), s.slices.Synced(), s.nodes.Synced(), s.foreign.Synced()}
	if s.found.renews {
		follow(s.renews, authentication(pluralRenews))
		synced = append(synced, s.renews.Synced())
	}
	if s.found.unconnected == "" {
		synced = append(synced, s.followNetworking(ctx, running, follow)...)
	}
	for _, first := range synced {
		if !await(ctx, first) {
			return
		}
	}
	// Whoever is in care may not be wanted any more: the caller has to say.
	for _, n := range s.namespaces.All() {
		if id := inCare(n); id != "" {
			s.cfg.Changed(id)
		}
	}
	s.queue.Run(ctx, workers, func(ctx context.Context, j job) work.Outcome { return work.Result(s.reconcile(ctx, j)) })
}

// describe says what Liqo is here.
func (s *session) describe() {
	if !s.maps.HasSynced() || !s.deployments.HasSynced() {
		return
	}
	s.describing.Lock()
	defer s.describing.Unlock()
	found, namespace := installation(s.maps.All(), s.deployments.All())
	s.mu.Lock()
	if s.namespace != namespace {
		s.namespace, s.keys = namespace, nil
	}
	s.mu.Unlock()
	before := s.self()
	if s.set(&found, false); found.ID != before {
		s.Liqo.mu.Lock()
		defer s.Liqo.mu.Unlock()
		for id := range s.pairs {
			s.Liqo.due(id)
		}
	}
}

// changed has the pairs looked at that a changed object is about.
func (s *session) changed(before, after *object) {
	for _, o := range []*object{before, after} {
		if o == nil {
			continue
		}
		s.concerns(remote(o))
		if id := inCare(o); id != "" {
			s.add(id)
		}
	}
}

// concerns has the pairs looked at that are with a cluster which Liqo calls so.
func (s *session) concerns(id document.ClusterID) {
	for _, n := range s.namespaces.By(byRemote(id)) {
		if of := inCare(n); of != "" {
			s.add(of)
		}
	}
}

// self returns what Liqo calls this cluster.
func (s *session) self() document.ClusterID {
	if found, _ := s.Installed(); found != nil {
		return found.ID
	}
	return ""
}

// add has both directions of a pair looked at.
func (s *session) add(id peer.ClusterID) {
	s.queue.Add(job{id, true})
	s.queue.Add(job{id, false})
}

// addAll has all pairs looked at.
func (s *session) addAll() {
	for _, n := range s.namespaces.All() {
		if id := inCare(n); id != "" {
			s.add(id)
		}
	}
}

// reconcile works on one direction of a pair.
func (s *session) reconcile(ctx context.Context, j job) (again time.Duration, err error) {
	s.Liqo.mu.Lock()
	p := s.pairs[j.id]
	if p != nil && s.forget(j.id, p) { // its namespace ended last, which changes nothing of what is said of the pair
		delete(s.failed, j)
		p = nil
	}
	var now pair
	if p != nil {
		now = *p
	}
	s.Liqo.mu.Unlock()
	self := s.self()
	if p == nil {
		return 0, nil
	}
	if j.serve {
		return s.serve(ctx, j.id, p, now, self)
	}
	return s.consume(ctx, j.id, p, now, self)
}

// serve works on the peer's consuming this cluster.
func (s *session) serve(ctx context.Context, id peer.ClusterID, p *pair, now pair, self document.ClusterID) (again time.Duration, err error) {
	obs := exchange.Provider{
		Peer: id, Wanted: now.serves(), Undecided: now.desired.Serve == nil, Self: self, Said: now.heard, Addresses: s.addresses(),
		// What may be wanted keeps the namespace.
		Consumes: now.desired.Consume == nil || now.desired.Consume.Wanted,
		Network:  s.network(), Address: now.heardAt, Cut: now.desired.Cut,
	}
	if now.heard != nil {
		obs.Consumer = now.heard.ClusterID
	}
	obs.Consumer = s.other(id, obs.Consumer)
	obs.Here = s.here(obs.Consumer, id)
	if !obs.Wanted && !obs.Undecided {
		since := s.cfg.Now().Sub(now.unserved)
		obs.Overdue, obs.Expired = since >= undoWait, since >= giveUp
		switch {
		case !obs.Overdue:
			again = undoWait - since
		case !obs.Expired:
			again = giveUp - since
		}
	}
	d := exchange.PlanProvider(obs)
	if !d.Busy {
		again = 0
	}
	failed, err := s.act(ctx, d.Actions)
	s.note(job{id, true}, d, obs.Shown, failed, err, func() *Status {
		if p.desired.Serve != now.desired.Serve || p.heard != now.heard {
			return nil
		}
		p.answer, p.final = d.Answer, d.Reason != exchange.ReasonWaits && !d.Connecting
		close(p.told)
		p.told = make(chan struct{})
		return &p.serving
	})
	return again, err
}

// consume works on this cluster's consuming the peer.
func (s *session) consume(ctx context.Context, id peer.ClusterID, p *pair, now pair, self document.ClusterID) (again time.Duration, err error) {
	asked := now.asking
	var want Consumption
	if c := now.desired.Consume; c != nil {
		want = *c
	}
	obs := exchange.Consumer{
		Peer: id, Wanted: want.Wanted, Undecided: now.desired.Consume == nil, Gone: want.Gone, Cut: now.desired.Cut, Self: self, Asks: want.Asks,
		Serves: now.desired.Serve == nil || *now.desired.Serve, Network: s.network(), Said: asked.said, Address: asked.address, Now: s.cfg.Now(),
	}
	if asked.said != nil {
		obs.Provider = asked.said.ClusterID
	}
	obs.Provider = s.other(id, obs.Provider)
	obs.Here = s.here(obs.Provider, id)
	if want.Wanted && obs.Signed != nil && len(obs.Signed.Signature) > 0 {
		obs.Keys, err = s.ownKeys(ctx)
	}
	d := exchange.PlanConsumer(obs)
	if asked.failed != "" && d.Reason == exchange.ReasonWaits && d.Call != nil {
		d.Reason, d.Message = exchange.ReasonWaits, asked.failed
	}
	var failed exchange.Kind
	if err == nil {
		failed, err = s.act(ctx, d.Actions)
	}
	current := func() *Status {
		if p.desired.Consume != now.desired.Consume {
			return nil
		}
		return &p.consuming
	}
	s.note(job{id, false}, d, obs.Shown, failed, err, current)
	if err != nil && !failed.Connects() || d.Call == nil || want.Target.Fingerprint.IsZero() {
		return 0, err
	}
	if pause := asked.next.Sub(s.cfg.Now()); pause > 0 && asked.call != nil && asked.call.Equal(*d.Call) {
		return pause, err
	}
	s.Liqo.mu.Lock()
	pause := p.asking.mayCall(s.cfg.Now())
	s.Liqo.mu.Unlock()
	if pause > 0 {
		d.Reason, d.Message = exchange.ReasonWaits, "The provider says something else each time it is asked. It is asked again in a minute."
		s.note(job{id, false}, d, obs.Shown, failed, err, current)
		return pause, err
	}
	return s.ask(ctx, p, now, *d.Call, obs.Identity), nil
}

// ask calls the provider, of which there is that Identity, if any, and returns after how long to look at the pair again.
func (s *session) ask(ctx context.Context, p *pair, now pair, call exchange.Call, identity *exchange.Identity) time.Duration {
	answer, address, err := s.call(ctx, now.desired.Consume.Target, call)
	s.Liqo.mu.Lock()
	defer s.Liqo.mu.Unlock()
	if p.desired.Consume != now.desired.Consume || ctx.Err() != nil {
		return time.Nanosecond // something else is wanted by now
	}
	next := p.asking
	next.call = &call
	old := next.said
	switch {
	case err != nil:
		next.failed = "The provider's agent cannot be asked: " + text.Sentence(err.Error()) + "."
		next.same++
	default:
		next.failed = ""
		before := next.address
		if old == nil && identity != nil { // the agent was restarted
			before = hostOf(identity.APIServer)
		}
		if before.IsValid() && before == hostOf(now.desired.Consume.Target.URL) {
			// It is announced, and answers there. Of several addresses that are tried a moment after each other, the first
			// to answer wins, and any host is slow for a moment. Liqo would follow it there and back.
			address = before
		}
		news := old == nil || next.address != address || !reflect.DeepEqual(*old, answer)
		if next.said, next.address = &answer, address; news && next.same < 2 {
			next.same = 0
		} else {
			next.same++ // also of one that says something new each time
		}
	}
	pause := asksAgain.Pause(max(next.same, 1))
	if err == nil && answer.Waits == "" {
		pause = interval
	}
	if next.same > 0 && (old == nil || err != nil) {
		pause = max(pause, work.RetryAfter(err))
	}
	next.next = s.cfg.Now().Add(pause)
	p.asking = next
	return time.Nanosecond // the plan is another now, or waits until then
}

// hostOf returns the address in a URL, the zero Addr if there is a name.
func hostOf(url string) netip.Addr {
	at, err := peer.ParseURL(url)
	if err != nil {
		return netip.Addr{}
	}
	host, err := netip.ParseAddr(at.Hostname())
	if err != nil {
		return netip.Addr{}
	}
	return host.Unmap()
}

func (s *session) call(ctx context.Context, target peer.Target, call exchange.Call) (answer exchange.Answer, from netip.Addr, err error) {
	body, err := json.Marshal(call)
	if err != nil {
		return answer, from, err
	}
	resp, err := s.cfg.Peers.Exchange(ctx, target, client.Request{Method: http.MethodPost, Path: wire.PathLiqo, Body: body})
	if err != nil {
		return answer, from, err
	}
	if resp.Status != http.StatusOK {
		return answer, from, resp.Refused()
	}
	if answer, err = exchange.ParseAnswer(resp.Body); err != nil {
		return answer, from, fmt.Errorf("the peer %w", err)
	}
	return answer, resp.Result.Addr.Addr().Unmap(), nil
}

// note keeps the state of one direction, where current says; nil: something else is wanted by now,
// and it is looked at again. current is called with Liqo.mu held. A step that failed, about that kind with
// err, is shown when it has failed so often that it is not because of what was not seen yet.
func (s *session) note(j job, d exchange.Decision, shown []exchange.Shown, failed exchange.Kind, err error, current func() *Status) {
	s.Liqo.mu.Lock()
	if s.failed[j]++; err == nil {
		delete(s.failed, j)
	}
	failures := s.failed[j]
	if failures >= shownFailures {
		d.Fail(failed, err)
	}
	next, status := d.Status(), current()
	next.Shown = shown
	same := status == nil || reflect.DeepEqual(*status, next)
	if !same {
		*status = next
	}
	s.Liqo.mu.Unlock()
	if failures == shownFailures {
		s.cfg.Logger.Warn("a step of the exchange with a peer's Liqo failed, trying again", "peer", j.id, "error", err)
	}
	if !same {
		s.cfg.Changed(j.id)
	}
}

// ownKeys returns the key pair of this cluster.
func (s *session) ownKeys(ctx context.Context) (*document.Keys, error) {
	s.mu.Lock()
	namespace, keys, fresh := s.namespace, s.keys, s.cfg.Now().Sub(s.keysRead) < keysFor
	s.mu.Unlock()
	if keys != nil && fresh {
		return keys, nil
	}
	var secret object
	if err := s.client.Get(ctx, namespacesPath+"/"+namespace+"/secrets/"+document.KeysSecret, &secret); err != nil {
		return nil, err
	}
	read, err := document.ParseKeys(secret.Data[document.FieldPrivateKey], secret.Data[document.FieldPublicKey])
	if err != nil {
		return nil, fmt.Errorf("read Liqo's keys of this cluster from Secret %s/%s: %w", namespace, document.KeysSecret, err)
	}
	s.mu.Lock()
	s.keys, s.keysRead = &read, s.cfg.Now()
	s.mu.Unlock()
	return &read, nil
}
