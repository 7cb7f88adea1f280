package plan

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/sharing/spec"
)

// This file holds a model of two boxes, each with an API server, a decision store and the
// memory of a process, and of the network between them. Plan is the real one.

const (
	idA = peer.ClusterID("aaaaaaaa-0000-4000-8000-000000000001")
	idB = peer.ClusterID("bbbbbbbb-0000-4000-8000-000000000002")

	modelLostAfter = 15 * time.Minute
)

// identityOf is a cluster key with its certificate.
type identityOf struct {
	fingerprint peer.Fingerprint
	ca          []byte
}

func newIdentity() identityOf {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: t0, NotAfter: t0.AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return identityOf{fingerprint: peer.FingerprintOf(cert.RawSubjectPublicKeyInfo), ca: der}
}

// modelKeys are made once: making keys is slow.
var modelKeys = []identityOf{newIdentity(), newIdentity(), newIdentity(), newIdentity()}

// book is a model of a decision store about one peer.
type book struct {
	Pin                     *peer.Pin
	Distrusted, Blocked     bool
	Connect                 Tristate
	HungUp, Forgotten       bool
	EndedByPeer, Ended      string
	Generation              uint64
	Accept                  api.RequestPhase
	ForLess                 bool // Accept does not hold for Liqo
	LastServed, LastJoined  bool
	JoinStamp, TrustStamp   string
	AskedAt                 time.Time `json:"-"`
	JoinedEvents, EndEvents int
}

func (b *book) policy(now time.Time) Policy {
	s := Policy{
		Distrusted: b.Distrusted, Blocked: b.Blocked, Connect: b.Connect, Generation: b.Generation, Asked: now.Sub(b.AskedAt) < 10*time.Second && b.Pin != nil && !b.Blocked,
		Ended: b.Ended, LastServed: b.LastServed, LastJoined: b.LastJoined, JoinStamp: b.JoinStamp, TrustStamp: b.TrustStamp,
		Code:   "aaaaa-bbbbb-ccccc-ddddd-eeeee-fffff-ggggg-hhhhh",
		Accept: AcceptDecision{Phase: b.Accept, Reason: "Because" + string(b.Accept), Message: "It is " + string(b.Accept) + ".", ByLiqo: !b.ForLess},
	}
	if b.Pin != nil {
		pin := *b.Pin
		s.Pin = &pin
	} else {
		s.Accept = AcceptDecision{Phase: api.RequestRefused, Reason: wire.ReasonNotTrusted, Message: "Not trusted."}
	}
	if b.Blocked {
		s.Accept = AcceptDecision{Phase: api.RequestRefused, Reason: wire.ReasonBlocked, Message: "Blocked."}
	}
	if b.Blocked || b.HungUp || b.EndedByPeer != "" {
		s.Connect, s.ConnectReason = No, "something ended it"
	}
	if s.Forgotten = b.Forgotten; b.Forgotten && s.Connect == Unset {
		s.Connect = No
	}
	return s
}

func (b *book) connect() {
	b.Connect, b.HungUp, b.EndedByPeer, b.Forgotten = Yes, false, "", false
	b.Generation++
}

func (b *book) disconnect() {
	b.Connect, b.HungUp, b.EndedByPeer, b.Forgotten = No, false, "", false
}

// forget drops everything about the other box, as people do.
func (b *book) forget() {
	*b = book{Accept: api.RequestPending, Generation: b.Generation, Forgotten: true, JoinStamp: b.JoinStamp, TrustStamp: b.TrustStamp}
}

func (b *book) accept() { b.Accept, b.Ended = api.RequestAccepted, "" }

// objects is a model of an API server: the objects about one peer.
type objects struct {
	FCs           map[string]*api.ForeignCluster
	Owners        map[string]fields.Owners
	Request       *api.PeeringRequest
	Advertisement *api.Advertisement
	Secret        *Secret
	Access        *Access
}

// box is a model of one cluster and its agent.
type box struct {
	id    peer.ClusterID
	key   identityOf
	other *box
	w     *world

	kube  objects
	book  book
	apiUp bool

	// The memory of the process.
	remote                         RemoteStatus
	desired                        RemoteSpec
	askAgain                       bool // Ask or Fresh became true and was not passed on yet
	freshUsed                      bool // a request was written with it
	requestDeleted                 Deleter
	offerDeleted                   Deleter
	requestSeen                    time.Time
	requestUID                     types.UID
	away, tearing                  time.Time
	draining                       time.Time
	generation, observedGeneration uint64
	generationSince                time.Time

	asks int // for a peering
	// urls is what is known about the URLs in people's objects.
	urls map[string]discovered.Probe

	// What the registry knows.
	phase    peer.Phase
	knows    identityOf
	conflict bool

	// What comes of consuming the other box.
	node    spec.NodeStatus
	network spec.Network
	pods    bool // some run there, and take their time to leave
	stuck   bool // Liqo never lets go of what it has
	sharing SharingSettings
	quietly bool // nothing is offered

	// What Liqo has between the two, and is to have.
	engine   engine.State
	liqo     LiqoStatus
	liqoSpec LiqoSpec

	done []ActionKind // every action that was carried out
}

// world is two boxes and the network between them.
type world struct {
	now  time.Time
	link bool
	a, b *box
	uids int
	rvs  int
}

func newWorld() *world {
	w := &world{now: t0, link: true}
	w.a = &box{id: idA, key: modelKeys[0], w: w}
	w.b = &box{id: idB, key: modelKeys[1], w: w}
	w.a.other, w.b.other = w.b, w.a
	for _, s := range w.boxes() {
		s.apiUp, s.phase, s.knows = true, peer.PhasePresent, s.other.key
		s.kube = objects{FCs: map[string]*api.ForeignCluster{}, Owners: map[string]fields.Owners{}}
		s.book.Accept = api.RequestAccepted
		s.sharing = DefaultSharing()
	}
	return w
}

func (w *world) boxes() []*box { return []*box{w.a, w.b} }

func (w *world) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprintf("uid-%d", w.uids))
}

// pin has a box trust the key that the other one holds now.
func (s *box) pin() {
	s.book.Pin = &peer.Pin{ID: s.other.id, Fingerprint: s.other.key.fingerprint, Method: peer.TrustPerson, By: "user alice", At: t0}
	s.book.Distrusted = false
	s.knows, s.conflict = s.other.key, false
}

// suspend has the certificate of the fleet end, or be renewed, by which a box trusts the
// other one.
func (s *box) suspend(ended bool) {
	if s.book.Pin == nil {
		return
	}
	pin := *s.book.Pin
	if pin.Suspended = (time.Time{}); ended {
		pin.Suspended = s.w.now
	}
	s.book.Pin = &pin
}

func (b *book) suspended() bool { return b.Pin != nil && !b.Pin.Suspended.IsZero() }

// see has the registry of a box look at the other one.
func (s *box) see() {
	s.conflict = s.w.link && s.knows.fingerprint != s.other.key.fingerprint
	switch {
	case s.w.link && !s.conflict:
		s.phase = peer.PhasePresent
	case s.phase == peer.PhasePresent:
		s.phase = peer.PhaseUnreachable
	}
	if s.phase == peer.PhasePresent && s.book.HungUp && !s.away.IsZero() && s.w.now.Sub(s.away) > time.Minute {
		s.book.HungUp = false // it was away and returned
	}
	s.watchAway()
}

// watchAway measures how long the other box has been away.
func (s *box) watchAway() {
	pinned := s.book.Pin == nil || s.book.Pin.Fingerprint == s.knows.fingerprint
	switch {
	case s.phase == peer.PhasePresent && pinned && !s.book.suspended() && s.remote.Denied != wire.ReasonCertificateEnded:
		s.away = time.Time{}
	case s.away.IsZero():
		s.away = s.w.now
	}
}

// observe gathers what the planner of a box sees.
func (s *box) observe() Observed {
	other := s.other
	p := &peer.Peer{
		ID: other.id, Name: "box", Namespace: "liqo", Fingerprint: s.knows.fingerprint, Phase: s.phase, Source: peer.LAN,
		URL: "https://192.0.2.1:6447", TTL: time.Minute,
	}
	if s.conflict {
		p.Conflict = &peer.Conflict{Fingerprint: other.key.fingerprint, Addr: "192.0.2.1:6447"}
	}
	obs := Observed{
		ID: other.id, Peer: p, Settled: true, LostAfter: modelLostAfter,
		Self:   wire.Greeting{Identity: peer.Identity{ClusterID: s.id, ClusterName: "box-" + string(s.id[:1]), GuestNamespace: "liqo"}, Port: 6447},
		Policy: s.book.policy(s.w.now), RequestsKnown: s.apiUp, Namespace: "liqo", Remote: s.remote,
	}
	s.watchAway()
	if !s.away.IsZero() {
		obs.Away = s.w.now.Sub(s.away)
	}
	if !s.tearing.IsZero() {
		obs.TearingDown = max(s.w.now.Sub(s.tearing), 1)
	}
	if s.book.Generation != s.generation {
		s.generation, s.generationSince = s.book.Generation, s.w.now
	}
	obs.GenerationSince, obs.ObservedGeneration = s.generationSince, s.observedGeneration
	obs.NotSharing = s.quietly
	obs.Sharing, obs.Node, obs.NodeKnown, obs.OfferFits, obs.Network = s.sharing, s.node, true, true, s.network
	obs.Engine, obs.Liqo = s.engine, s.liqo
	if s.liqo.Consuming.Unknown { // since the start
		obs.Engine.Liqo, obs.Engine.Unknown = nil, true
	}
	if !s.draining.IsZero() {
		obs.Draining = max(s.w.now.Sub(s.draining), 1)
	}
	if !s.apiUp {
		return obs
	}
	obs.Owners, obs.URLs = s.kube.Owners, s.urls
	for name, fc := range s.kube.FCs {
		if fc.ClusterID() == string(other.id) || name == string(other.id) {
			obs.Objects = append(obs.Objects, fc)
		}
	}
	obs.Request, obs.Advertisement, obs.Secret, obs.Access = s.kube.Request, s.kube.Advertisement, s.kube.Secret, s.kube.Access
	if obs.Request == nil {
		obs.RequestDeleted = s.requestDeleted
	} else {
		if obs.Request.UID != s.requestUID {
			s.requestUID, s.requestSeen, s.requestDeleted = obs.Request.UID, s.w.now, DeletedUnseen
		}
		obs.RequestSeen = s.requestSeen
	}
	if obs.Advertisement == nil {
		obs.OfferDeleted = s.offerDeleted
	} else {
		s.offerDeleted = DeletedUnseen
	}
	obs.Offer = &api.AdvertisementSpec{ClusterID: string(s.id), ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": "4"}}}
	return obs
}

// apply carries out one action, and reports whether it changed anything.
func (s *box) apply(a Action) bool {
	s.done = append(s.done, a.Kind)
	before := s.dump()
	k, b := &s.kube, &s.book
	var fc *api.ForeignCluster
	switch a.Kind {
	case Create, UpdateSpec, Identify, UpdateStatus, UpdatePeering, ApplyIntent, AddFinalizer, RemoveFinalizer, RequestRef, AdvertisementRef, Delete:
		if fc = k.FCs[a.Name]; fc != nil {
			if a.UID != "" && a.UID != fc.UID {
				panic(fmt.Sprintf("%s on another object", a.Kind))
			}
			fc = fc.DeepCopy()
		}
		if a.Kind != Create && fc == nil {
			panic(fmt.Sprintf("%s on an object that is not there", a.Kind))
		}
	case SetRequestStatus, DeleteRequest:
		if k.Request == nil || k.Request.UID != a.UID {
			panic(fmt.Sprintf("%s on another object", a.Kind))
		}
	case SetAdvertisementStatus, DeleteAdvertisement:
		if k.Advertisement == nil || k.Advertisement.UID != a.UID {
			panic(fmt.Sprintf("%s on another object", a.Kind))
		}
	}
	put := func() {
		s.w.rvs++
		fc.ResourceVersion = fmt.Sprint(s.w.rvs)
		k.FCs[a.Name] = fc
		if fc.DeletionTimestamp != nil && len(fc.Finalizers) == 0 {
			delete(k.FCs, a.Name)
			delete(k.Owners, a.Name)
		}
	}
	switch a.Kind {
	case Create:
		if fc != nil {
			panic("creates what is there")
		}
		fc = &api.ForeignCluster{}
		fc.Name, fc.UID, fc.Labels = a.Name, s.w.uid(), a.Spec.Labels
		fc.Spec.TrustMode = api.TrustUnknown
		fallthrough
	case UpdateSpec:
		identity := a.Spec.ClusterIdentity
		fc.Spec.ClusterIdentity, fc.Spec.Namespace = &identity, a.Spec.Namespace
		fc.Spec.DiscoveryType, fc.Spec.AuthURL = a.Spec.DiscoveryType, a.Spec.AuthURL
		put()
	case Identify:
		owners := k.Owners[a.Name]
		identity := a.Identity.ClusterIdentity
		if fc.CreatedByAgent() || fc.ClusterID() != "" && fc.ClusterID() != identity.ClusterID || owners.Identity.Name && identity.ClusterName != "" ||
			a.ResourceVersion != fc.ResourceVersion {
			panic("identifies what it must not")
		}
		if owners.Identity.Name {
			identity.ClusterName = fc.Spec.ClusterIdentity.ClusterName
		}
		fc.Spec.ClusterIdentity, fc.Spec.Namespace = &identity, a.Identity.Namespace
		owners.Identity.Filled = true
		k.Owners[a.Name] = owners
		put()
	case UpdateStatus:
		fc.Status.Fingerprint, fc.Status.TTL = a.Status.Fingerprint, a.Status.TTL
		setConditions(fc, a.Status.Conditions, api.ConditionReachable, api.ConditionVerified, api.ConditionConflict, api.ConditionAuthURL)
		put()
	case UpdatePeering:
		p := a.Peering
		fc.Status.Role, fc.Status.AuthStatus, fc.Status.Modules = p.Role, p.AuthStatus, p.Modules
		fc.Status.Outgoing.PeeringState, fc.Status.Incoming.PeeringState = p.Outgoing, p.Incoming
		setConditions(fc, p.Conditions, api.ConditionTrusted, api.ConditionOutgoingPeering, api.ConditionIncomingPeering, api.ConditionNetworkReady, api.ConditionAutojoin, api.ConditionEngine,
			api.ConditionAccessRequested)
		put()
	case ApplyIntent:
		owners := k.Owners[a.Name]
		if a.Intent.Join != nil {
			fc.Spec.Join, owners.Join = *a.Intent.Join, fields.Owner{Manager: fields.ManagerIntent}
		}
		if a.Intent.TrustMode != nil {
			fc.Spec.TrustMode, owners.TrustMode = *a.Intent.TrustMode, fields.Owner{Manager: fields.ManagerIntent}
		}
		k.Owners[a.Name] = owners
		put()
	case AddFinalizer:
		fc.Finalizers = append(fc.Finalizers, api.FinalizerPeering)
		put()
	case RemoveFinalizer:
		fc.Finalizers = slices.DeleteFunc(fc.Finalizers, func(f string) bool { return f == api.FinalizerPeering })
		put()
	case RequestRef:
		fc.Status.Incoming.PeeringRequest = a.Ref
		put()
	case AdvertisementRef:
		fc.Status.Outgoing.Advertisement = a.Ref
		put()
	case Delete:
		if hasFinalizer(fc) || !fc.CreatedByAgent() {
			panic("deletes what it must not")
		}
		delete(k.FCs, a.Name)
		delete(k.Owners, a.Name)
	case SetRequestStatus:
		k.Request = k.Request.DeepCopy()
		k.Request.Status = *a.Request
	case DeleteRequest:
		k.Request, s.requestDeleted = nil, DeletedByUs
	case SetAdvertisementStatus:
		k.Advertisement = k.Advertisement.DeepCopy()
		status := *a.Advertisement
		if DecisionOf(k.Advertisement).Manager != "" {
			status.AdvertisementStatus = k.Advertisement.Status.AdvertisementStatus
		}
		k.Advertisement.Status = status
	case DeleteAdvertisement:
		k.Advertisement, s.offerDeleted = nil, DeletedByUs
	case ApplySecret:
		secret := *a.Secret
		secret.Intact, k.Secret = true, &secret
	case DeleteSecret:
		k.Secret = nil
	case ApplyAccess:
		access := *a.Access
		access.Intact, k.Access = true, &access
	case DeleteAccess:
		k.Access = nil
	case RecordJoinEdited:
		b.JoinStamp = a.Record.Stamp
		if a.Record.On {
			b.connect()
		} else {
			b.disconnect()
		}
	case RecordTrustEdited:
		b.TrustStamp = a.Record.Stamp
		switch {
		case a.Record.Mode == api.TrustTrusted && !a.Record.Shown.IsZero():
			b.Pin = &peer.Pin{ID: s.other.id, Fingerprint: a.Record.Shown, Method: peer.TrustPerson, By: a.Record.By, At: t0}
			b.Distrusted = false
		case a.Record.Mode == api.TrustUntrusted:
			b.Pin, b.Distrusted = nil, true
		}
	case RecordDecided:
		if b.Accept = api.RequestRefused; a.Record.On {
			b.accept()
		}
	case RecordHungUp:
		b.HungUp = true
	case RecordForgot:
		if b.Forgotten = false; b.Pin == nil && !b.Distrusted && b.Connect == Unset {
			b.JoinStamp, b.TrustStamp = "", ""
		}
	case RecordEndedByProvider:
		b.EndedByPeer = a.Record.Reason
		b.EndEvents++
	case RecordEndedHere:
		b.Ended, b.Accept = a.Record.Reason, api.RequestPending
	case RecordJoined:
		b.LastJoined = a.Record.On
		b.JoinedEvents++
	case RecordServed:
		b.LastServed = a.Record.On
	case RecordRequested:
		return true // history only
	case ObserveGeneration:
		s.observedGeneration = a.Generation
	default:
		panic("unknown action " + a.Kind)
	}
	return before != s.dump()
}

func setConditions(fc *api.ForeignCluster, conditions []api.Condition, owned ...string) {
	kept := slices.DeleteFunc(slices.Clone(fc.Status.Conditions), func(c api.Condition) bool { return slices.Contains(owned, c.Type) })
	fc.Status.Conditions = append(kept, conditions...)
}

// dump writes down everything that actions can change.
func (s *box) dump() string {
	for _, fc := range s.kube.FCs {
		slices.SortFunc(fc.Status.Conditions, func(a, b api.Condition) int { return len(a.Type) - len(b.Type) })
	}
	text, err := json.Marshal([]any{s.kube, s.book, s.observedGeneration, s.node, s.liqo})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// plan decides, and takes in what the decision says besides its actions.
func (s *box) plan() Decision {
	s.w.now = s.w.now.Add(time.Millisecond)
	obs := s.observe()
	s.provide(&obs)
	s.drive(&obs)
	d := Plan(obs, s.w.now)
	if again := Plan(obs, s.w.now); !reflect.DeepEqual(d, again) {
		panic("the same facts give another plan")
	}
	if d.Remote.Fresh && !s.desired.Fresh {
		s.freshUsed = false
	}
	if d.Remote.Ask && (!s.desired.Ask || d.Remote.Fresh && !s.desired.Fresh) {
		s.askAgain = true
	}
	s.desired = d.Remote
	if !d.TearingDown {
		s.tearing = time.Time{}
	} else if s.tearing.IsZero() {
		s.tearing = s.w.now
	}
	if !d.Draining {
		s.draining = time.Time{}
	} else if s.draining.IsZero() {
		s.draining = s.w.now
	}
	return d
}

// drainNode is noted among the actions when a node is not wanted any more.
const drainNode ActionKind = "drain-node"

// provide is a model of what turns peerings into nodes. It is as quick as can be,
// but for pods that take their time.
func (s *box) provide(obs *Observed) {
	switch p, _ := obs.NodeSpec(s.w.now); {
	case !s.apiUp:
	case p.Wanted && p.Offer != nil:
		s.node = spec.NodeStatus{Name: string(s.other.id), Busy: true, Ready: p.Reachable, Reason: "Ready"}
	case p.Wanted, s.node.Name == "":
	case p.Gone, !s.pods:
		s.done = append(s.done, drainNode)
		s.node, s.pods = spec.NodeStatus{}, false
	default:
		s.done = append(s.done, drainNode)
		s.node.Ready, s.node.Reason, s.node.Message = false, "Draining", "1 pod is left."
	}
	obs.Node = s.node
}

// reconcile plans and acts until there is nothing to do, and says what is wrong
// with how that went; "" when nothing is.
func (s *box) reconcile() string {
	if problem := s.identify(); problem != "" {
		return problem
	}
	for range 4 {
		d := s.plan()
		for _, a := range d.Actions {
			if !s.apply(a) {
				return fmt.Sprintf("%s %s changes nothing: %+v", a.Kind, a.Name, a)
			}
		}
		if d.Replan {
			continue
		}
		if left := s.plan().Actions; len(left) != 0 {
			return fmt.Sprintf("after the plan %v there is another one: %v", kinds(d.Actions), kinds(left))
		}
		return ""
	}
	return "it never ends"
}

func kinds(actions []Action) []ActionKind {
	var out []ActionKind
	for _, a := range actions {
		out = append(out, a.Kind)
	}
	return out
}

// sync does at the other box what a box desires, as far as it can.
func (s *box) sync() {
	defer s.watchAway() // whoever hears of an answer looks at once
	d, o := s.desired, s.other
	if reflect.DeepEqual(d, RemoteSpec{}) {
		if s.remote.Denied == wire.ReasonCertificateEnded {
			s.remote = RemoteStatus{} // who asks nothing any more forgets what was said
		}
		return
	}
	if !s.w.link || s.book.suspended() || d.Target.Fingerprint != o.key.fingerprint {
		s.remote.Err = fmt.Errorf("no answer")
		s.remote.Failures++
		return
	}
	s.remote.Err, s.remote.Failures, s.remote.CA = nil, 0, o.key.ca
	known := o.book.Pin != nil && o.book.Pin.Fingerprint == s.key.fingerprint
	if known && o.book.suspended() && !o.book.Blocked {
		s.remote.Denied, s.remote.Asked, s.remote.Err = wire.ReasonCertificateEnded, nil, fmt.Errorf("certificate ended")
		return
	}
	if d.Ask && (s.remote.Asked == nil || s.remote.Asked.Auth != api.AuthAccepted || s.askAgain) {
		s.askAgain = false
		s.asks++
		answer := wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonAsksPerson, Message: "Somebody has to decide."}
		switch {
		case o.book.Blocked:
			answer = wire.Answer{Auth: api.AuthEmptyRefused, Reason: wire.ReasonBlocked, Message: "Blocked."}
		case known && o.book.Accept == api.RequestRefused:
			answer = wire.Answer{Auth: api.AuthRefused, Reason: "Rejected", Message: "Somebody rejected it."}
		case known:
			if d.Fresh {
				o.book.Ended = ""
			}
			answer = wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "Welcome."}
			o.book.AskedAt = o.w.now
			if o.apiUp {
				if problem := o.reconcile(); problem != "" {
					panic(problem)
				}
			}
		}
		s.remote.Asked = &answer
		if answer.Auth != api.AuthAccepted {
			d.Request = nil
		}
	}
	s.remote.Denied = ""
	if o.book.Blocked {
		s.remote.Denied = wire.ReasonBlocked
	} else if !known {
		s.remote.Denied = wire.ReasonNotTrusted
		if s.remote.Asked != nil && s.remote.Asked.Auth == api.AuthAccepted {
			s.remote.Asked = nil
		}
	}
	if s.remote.Denied != "" {
		return
	}
	s.ask()
	if !o.apiUp {
		return
	}
	k := &o.kube
	if mine := k.Access; mine != nil && mine.Request {
		switch {
		case d.Request != nil && k.Request == nil && o.book.Ended != "" && (!d.Fresh || s.freshUsed):
			// A person has to want it again.
		case d.Request != nil && (k.Request == nil || k.Request.Spec != *d.Request):
			s.freshUsed = d.Fresh
			if k.Request == nil {
				k.Request = &api.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: string(s.id), UID: s.w.uid()}}
				k.Request.Status.Phase = api.RequestPending
				o.book.AskedAt = time.Time{}
			}
			k.Request = k.Request.DeepCopy()
			k.Request.Spec = *d.Request
		case d.Request == nil && d.RequestGone && k.Request != nil:
			if s.node.Busy || s.liqo.Consuming.Busy {
				panic("the request is taken back while pods are there")
			}
			o.requestDeleted, o.book.LastServed = DeletedByPeer, false
			k.Request = nil
		}
	} else if d.Request != nil && k.Request == nil {
		s.remote.Asked = nil // the API server forbids it: it is time to ask again
	}
	if mine := k.Access; mine != nil && mine.Advertisement {
		switch {
		case d.Advertisement != nil && (k.Advertisement == nil || !reflect.DeepEqual(k.Advertisement.Spec, *d.Advertisement)):
			if k.Advertisement == nil {
				k.Advertisement = &api.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: string(s.id), UID: s.w.uid()}}
			}
			k.Advertisement = k.Advertisement.DeepCopy()
			k.Advertisement.Spec = *d.Advertisement
		case d.Advertisement == nil && d.AdvertisementGone && k.Advertisement != nil:
			o.offerDeleted = DeletedByPeer
			k.Advertisement = nil
		}
	}
	s.ask()
}

// ask takes in the other box's state.
func (s *box) ask() {
	state := s.other.observe().Answer()
	s.remote.State, s.remote.At = &state, s.w.now
	if state.Request != nil && s.remote.Asked != nil && s.remote.Asked.Auth != api.AuthAccepted {
		s.remote.Asked = nil
	}
}

// restart has the process of a box start anew.
func (s *box) restart() {
	s.remote, s.desired, s.askAgain, s.freshUsed = RemoteStatus{}, RemoteSpec{}, false, false
	s.requestDeleted, s.offerDeleted, s.requestUID, s.requestSeen = DeletedUnseen, DeletedUnseen, "", time.Time{}
	s.draining = time.Time{}
	s.liqo.Consuming.Unknown, s.liqo.Serving.Unknown, s.liqoSpec = s.engine.Liqo != nil, s.engine.Liqo != nil, LiqoSpec{}
	s.away, s.tearing, s.generationSince, s.generation, s.observedGeneration = time.Time{}, time.Time{}, time.Time{}, 0, 0
	s.book.Generation = 0
	s.urls = nil
}

// wipe has the API server of a box start empty.
func (s *box) wipe() {
	s.kube = objects{FCs: map[string]*api.ForeignCluster{}, Owners: map[string]fields.Owners{}}
	s.requestDeleted, s.offerDeleted = DeletedUnseen, DeletedUnseen
	s.node, s.pods, s.liqo = spec.NodeStatus{}, false, LiqoStatus{}
}

// reset is a factory reset: another key, and nothing is known.
func (s *box) reset(key identityOf) {
	s.restart()
	s.wipe()
	s.key, s.book = key, book{Accept: api.RequestAccepted}
	s.knows, s.conflict, s.phase = s.other.key, false, peer.PhasePresent
}

// edit is a person with kubectl.
func (s *box) edit(change func(fc *api.ForeignCluster, owners *fields.Owners)) {
	for name, fc := range s.kube.FCs {
		if fc.DeletionTimestamp != nil {
			continue
		}
		fc, owners := fc.DeepCopy(), s.kube.Owners[name]
		change(fc, &owners)
		s.kube.FCs[name], s.kube.Owners[name] = fc, owners
	}
}

func (s *box) kubectlJoin(join bool) {
	s.edit(func(fc *api.ForeignCluster, owners *fields.Owners) {
		if fc.Spec.Join != join {
			fc.Spec.Join = join
			owners.Join = fields.Owner{Manager: "kubectl-patch", Stamp: string(s.w.uid())}
		}
	})
}

func (s *box) kubectlTrust(mode api.TrustMode) {
	s.edit(func(fc *api.ForeignCluster, owners *fields.Owners) {
		if fc.Spec.TrustMode != mode {
			fc.Spec.TrustMode = mode
			owners.TrustMode = fields.Owner{Manager: "kubectl-patch", Stamp: string(s.w.uid())}
		}
	})
}

func (s *box) kubectlDelete() {
	for name, fc := range s.kube.FCs {
		if len(fc.Finalizers) == 0 {
			delete(s.kube.FCs, name)
			delete(s.kube.Owners, name)
			continue
		}
		fc = fc.DeepCopy()
		fc.DeletionTimestamp = &metav1.Time{Time: s.w.now}
		s.kube.FCs[name] = fc
	}
}

func (s *box) deleteRequest() {
	if s.kube.Request != nil {
		s.observe() // the watch saw it
		s.kube.Request, s.requestDeleted = nil, DeletedByPerson
	}
}

func (s *box) deleteOffer() {
	if s.kube.Advertisement != nil {
		s.observe()
		s.kube.Advertisement, s.offerDeleted = nil, DeletedByPerson
	}
}

// pass lets time pass; everybody looks around.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, s := range w.boxes() {
		s.see()
	}
}

// round has both boxes plan and talk once.
func (w *world) round(d time.Duration) string {
	w.pass(d)
	for _, s := range w.boxes() {
		if !s.apiUp {
			continue // there is no session that plans
		}
		if problem := s.reconcile(); problem != "" {
			return string(s.id[:1]) + ": " + problem
		}
	}
	for _, s := range w.boxes() {
		s.sync()
	}
	for _, s := range w.boxes() {
		s.liqoWorks()
	}
	return ""
}

// rest runs rounds until nothing changes any more, and says what is wrong when it
// does not come to rest.
func (w *world) rest() string {
	for range 40 {
		before := w.a.dump() + w.b.dump()
		quiet := true
		for range 4 {
			if problem := w.round(5 * time.Second); problem != "" {
				return problem
			}
			if after := w.a.dump() + w.b.dump(); after != before {
				quiet = false
				break
			}
		}
		if quiet {
			return ""
		}
	}
	return "it does not come to rest"
}

// own returns the ForeignCluster that the agent of a box made for the other one,
// nil for none.
func (s *box) own() *api.ForeignCluster { return s.kube.FCs[string(s.other.id)] }

// shown returns the ForeignCluster that counts for the other box, nil for none.
func (s *box) shown() *api.ForeignCluster {
	if mine := s.mine(); len(mine) > 0 {
		return mine[0]
	}
	return s.own()
}

// joined reports whether a box shows that it consumes the other one's resources,
// and serves whether it shows the other direction.
func (s *box) joined() bool { fc := s.shown(); return fc != nil && fc.Status.Outgoing.Joined }
func (s *box) serves() bool { fc := s.shown(); return fc != nil && fc.Status.Incoming.Joined }

// reason returns the reason of a condition that a box shows, "" for none.
func (s *box) reason(condition string) string {
	fc := s.shown()
	if fc == nil || fc.Condition(condition) == nil {
		return ""
	}
	return fc.Condition(condition).Reason
}

// GoString is for failures of tests.
func (s *box) GoString() string { return s.String() }

// String says how a box stands, in a few lines.
func (s *box) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: phase %s, conflict %v, API server %v", s.id[:1], s.phase, s.conflict, s.apiUp)
	for _, fc := range s.kube.FCs {
		fmt.Fprintf(&out, "\n  ForeignCluster %.8s join %v trust %s finalizers %v deleted %v; out %v %q; in %v;", fc.Name, fc.Spec.Join, fc.Spec.TrustMode,
			len(fc.Finalizers), fc.DeletionTimestamp != nil, fc.Status.Outgoing.Joined, fc.Status.Outgoing.RemotePeeringRequestName, fc.Status.Incoming.Joined)
		for _, c := range fc.Status.Conditions {
			fmt.Fprintf(&out, " %s=%s/%s", c.Type, c.Status, c.Reason)
		}
		fmt.Fprintf(&out, " %+v", s.kube.Owners[fc.Name])
	}
	if s.kube.Request != nil {
		fmt.Fprintf(&out, "\n  request %+v", s.kube.Request.Status)
	}
	if s.kube.Advertisement != nil {
		fmt.Fprintf(&out, "\n  advertisement %+v", s.kube.Advertisement.Status)
	}
	b := s.book
	pin := "none"
	if b.Pin != nil {
		pin = b.Pin.Fingerprint.String()[:8]
	}
	b.Pin = nil
	fmt.Fprintf(&out, "\n  secret %v access %+v deleted %v %v", s.kube.Secret != nil, s.kube.Access, s.requestDeleted, s.offerDeleted)
	fmt.Fprintf(&out, "\n  key %.8s pin %s %+v begun %d", s.key.fingerprint, pin, b, s.observedGeneration)
	d := s.desired
	fmt.Fprintf(&out, "\n  desires contact %v ask %v fresh %v request %v/%v offer %v/%v", d.Contact, d.Ask, d.Fresh, d.Request != nil, d.RequestGone,
		d.Advertisement != nil, d.AdvertisementGone)
	fmt.Fprintf(&out, "\n  use %+v pods %v", s.node, s.pods)
	fmt.Fprintf(&out, "\n  asked %+v denied %q", s.remote.Asked, s.remote.Denied)
	if st := s.remote.State; st != nil {
		fmt.Fprintf(&out, " state: kube %v request %v ended %q consumes %v offer %v", st.Kubernetes, st.Request != nil, st.Ended, st.Consumes, st.Advertisement != nil)
	}
	return out.String()
}
