package host

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// Settings are those of [sharing] that matter to guests.
type Settings struct {
	// Prefix is what the names of guest namespaces begin with. Those that exist keep
	// theirs.
	Prefix string
	// PodSecurity is the Pod Security Standard that guest namespaces enforce, baseline
	// or restricted.
	PodSecurity string
	// Enforce says what is held to the offer: "requests", or "limits" for limits of
	// cpu and memory as well, which every container then has to have.
	Enforce string
	// MaxNamespaces is how many namespaces one consumer may have.
	MaxNamespaces int
	// GuestEgress says where pods may connect to besides each other: "internet" (with
	// the cluster's DNS), "all" or "none".
	GuestEgress string
	// Storage is how many bytes the claims of all consumers may ask for together.
	Storage int64
	// GuestStorageClass is the storage class of consumers' claims, "" for the default one.
	GuestStorageClass string
	// StorageKeep is how long the claims of a consumer are kept that is not admitted any more.
	StorageKeep time.Duration
	// LocalImages: pods may run what is on the node already.
	LocalImages bool
}

// Config is what a Host needs. All but Now is required.
type Config struct {
	// Settings returns the current settings. It must be quick and safe for concurrent
	// use.
	Settings func() Settings
	// Registries returns those that consumers may have images from. It must be quick
	// and safe for concurrent use.
	Registries func() registry.List
	// OnlyNode returns the node that all pods of consumers run on, "" if there is not exactly one. It must be quick and safe
	// for concurrent use.
	OnlyNode func() string
	// Users returns as whom the requests of consumers reach the API server. It must be quick and safe for concurrent use.
	Users func() api.PeerUsers
	// Changed is called when what Set returns for a consumer is another, when somebody
	// was found to have something here, and when one asks for whom Set was not called. It is called without a lock, must be
	// quick, and may call Set.
	Changed func(peer.ClusterID)
	// ClockTrusted reports whether Now can be believed for a decision about a consumer. It must be quick; nil: always.
	ClockTrusted func(about peer.ClusterID) bool
	Logger       *slog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Elapsed is the time since some moment by a clock that nobody sets; nil: since New.
	Elapsed func() time.Duration
}

func sameStatus(a, b spec.TenantStatus) bool {
	return a.Busy == b.Busy && a.Namespaces == b.Namespaces && a.Pods == b.Pods && maps.Equal(a.Used, b.Used) &&
		a.Claims == b.Claims && a.Storage == b.Storage && a.RetainedSince.Equal(b.RetainedSince)
}

// Host keeps what consumers have in this cluster. Its methods may be called from any
// goroutine.
type Host struct {
	cfg Config

	mu      sync.Mutex
	tenants map[peer.ClusterID]*tenant
	// session is the last one of which all caches were filled, nil before the first.
	// What it knows stays known after it ended.
	session *session
}

// tenant is a consumer that somebody spoke of, or that has something here, or asked for something.
type tenant struct {
	id peer.ClusterID
	// busy is held by whoever makes or unmakes namespaces: capacity 1.
	busy    chan struct{}
	account *account

	// What follows is guarded by Host.mu.

	said     bool // Set was called
	asked    bool // it asked for something, and is kept to be told why it gets nothing
	name     string
	admitted bool
	offer    corev1.ResourceList // never changed, only replaced; nil: none yet
	arch     string
	network  []netip.Prefix     // addresses of the consumer, as this cluster knows them
	down     bool               // no packets pass
	servers  []netip.Addr       // whom its pods ask for names; nil: the cluster DNS
	unnamed  bool               // that is not known yet
	settings Settings           // when Set was called last
	told     *spec.TenantStatus // what Set returned last; its map is shared
	found    bool               // Changed was called before Set
	reported time.Time
	parted   *time.Duration // Config.Elapsed when its claims were first seen to be only kept, nil if they are not
	evicted  time.Time      // when its eviction began, zero if it did not
	stuck    bool           // that it takes long was logged
	trouble  string         // what was logged last
}

// New returns a Host. It starts nothing.
func New(cfg Config) *Host {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.ClockTrusted == nil {
		cfg.ClockTrusted = func(peer.ClusterID) bool { return true }
	}
	if cfg.Elapsed == nil {
		start := time.Now()
		cfg.Elapsed = func() time.Duration { return time.Since(start) }
	}
	return &Host{cfg: cfg, tenants: make(map[peer.ClusterID]*tenant)}
}

// Set tells how a consumer's use of this cluster is to stand, and returns how it
// stands. It is to be called again and again with what is so then; it is quick, the
// work happens in Run. Without a connection the answer is the last that was known.
func (h *Host) Set(t spec.Tenant) spec.TenantStatus {
	offer, settings := quantities(t.Offer), h.cfg.Settings()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.tenants[t.ID]
	if n == nil {
		if !t.Admitted && h.session != nil {
			return spec.TenantStatus{} // who has something here is in the map
		}
		n = h.tenantLocked(t.ID)
	}
	changed := !n.said || !slices.Equal(n.network, t.Network) || n.down != t.NetworkDown || !slices.Equal(n.servers, t.Nameservers) || n.unnamed != t.NamesUnknown || n.admitted != t.Admitted || n.settings != settings || (n.offer == nil) != (offer == nil) || !sameAmounts(n.offer, offer)
	if t.Admitted || n.admitted { // the work for an earlier word may not have ended yet
		n.parted, n.evicted, n.stuck = nil, time.Time{}, false
	}
	n.said, n.name, n.admitted, n.offer, n.arch, n.network, n.down, n.servers, n.unnamed, n.settings = true, t.Name, t.Admitted, offer, t.Arch, t.Network, t.NetworkDown, t.Nameservers, t.NamesUnknown, settings
	if changed && h.session != nil {
		h.session.queue.Add(t.ID)
		h.session.wake()
	}
	now := h.standsLocked(n)
	n.told = &now
	return now
}

// Stands returns how a consumer's use of this cluster stands at this moment. Changed
// is called less often than pods come and go.
func (h *Host) Stands(id peer.ClusterID) spec.TenantStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.tenants[id]
	if n == nil {
		return spec.TenantStatus{}
	}
	return h.standsLocked(n)
}

// quantities returns an offer. What is no amount, which no API server took, is an
// offer of nothing.
func quantities(offer map[string]string) corev1.ResourceList {
	if offer == nil {
		return nil
	}
	out := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(defaultPods, resource.DecimalSI)}
	for name, text := range offer {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			q = resource.Quantity{}
		}
		out[corev1.ResourceName(name)] = q
	}
	return out
}

// Owns returns nil if a namespace is one of an admitted consumer's, which may be
// being deleted, and otherwise why not, or why that is not known.
func (h *Host) Owns(id peer.ClusterID, namespace string) error {
	_, err := h.place(id, namespace)
	return err
}

// Consumer returns whose a namespace is, "" for nobody, from what the API server said last, whether or not the consumer
// is admitted (any more). It is not known before the first connection.
func (h *Host) Consumer(namespace string) (id peer.ClusterID, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return "", false
	}
	if ns := h.session.namespaces.Get("", namespace); ns != nil {
		id = owner(ns)
	}
	return id, true
}

// Namespaces returns the namespaces of a consumer by those that they stand for, from what the
// API server said last.
func (h *Host) Namespaces(id peer.ClusterID) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return nil
	}
	out := make(map[string]string)
	for _, ns := range h.session.guests(id) {
		origin := ns.Labels[workload.LabelOriginNamespace]
		if _, known := out[origin]; origin != "" && (!known || ns.DeletionTimestamp == nil) {
			out[origin] = ns.Name
		}
	}
	return out
}

// tenantLocked returns the tenant of that ID, a new one if needed.
func (h *Host) tenantLocked(id peer.ClusterID) *tenant {
	n := h.tenants[id]
	if n == nil {
		n = &tenant{id: id, busy: make(chan struct{}, 1), account: newAccount(h.cfg.Now)}
		h.tenants[id] = n
	}
	return n
}

// standsLocked returns how the use of a consumer stands.
func (h *Host) standsLocked(n *tenant) spec.TenantStatus {
	if h.session == nil {
		return spec.TenantStatus{Busy: true}
	}
	pods, used := n.account.totals()
	out := spec.TenantStatus{Pods: pods}
	for _, guest := range h.session.guests(n.id) {
		out.Namespaces++
		if since, is := retainedSince(guest); !is {
			out.Busy = true
		} else if out.RetainedSince.IsZero() || since.Before(out.RetainedSince) {
			out.RetainedSince = since
		}
	}
	out.Claims, out.Storage = n.account.storage()
	if out.Storage > 0 {
		used[corev1.ResourceStorage] = *resource.NewQuantity(out.Storage, resource.BinarySI)
	}
	for name, q := range used {
		if !q.IsZero() {
			if out.Used == nil {
				out.Used = make(map[string]string)
			}
			out.Used[string(name)] = q.String()
		}
	}
	return out
}

// report calls Changed if the status of a consumer is new. It returns after how long to call
// report again, 0 for never.
func (h *Host) report(n *tenant) time.Duration {
	h.mu.Lock()
	now := h.standsLocked(n)
	var wait time.Duration
	switch since := h.cfg.Now().Sub(n.reported); {
	case n.told == nil && (n.found || !now.Busy), n.told != nil && sameStatus(now, *n.told):
		h.mu.Unlock()
		return 0
	case n.told != nil && now.Busy == n.told.Busy && now.Namespaces == n.told.Namespaces && since >= 0 && since < tellPause:
		wait = tellPause - since
	default:
		n.found, n.reported = true, h.cfg.Now()
	}
	h.mu.Unlock()
	if wait == 0 {
		h.cfg.Changed(n.id)
	}
	return wait
}

// take waits until nobody else works on the namespaces of a consumer, and returns
// what ends that.
func (h *Host) take(ctx context.Context, id peer.ClusterID) (*tenant, func(), error) {
	for {
		h.mu.Lock()
		n := h.tenants[id]
		h.mu.Unlock()
		if n == nil {
			return nil, nil, unknown(id)
		}
		select {
		case n.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, refuse(ReasonNotReady, "other work on the namespaces of %s takes long; try again", id).after(retryNotReady)
		}
		h.mu.Lock()
		current := h.tenants[id] == n
		h.mu.Unlock()
		if current {
			return n, func() { <-n.busy }, nil
		}
		<-n.busy // it was forgotten, and perhaps there is another one by now
	}
}

// forget drops a consumer that has nothing and may do nothing here. One that has asked for
// something is to be told so whenever it asks, and those are few: strangers cannot ask. The
// caller has taken it.
func (h *Host) forget(n *tenant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.said && !n.admitted && !n.asked && n.account.empty() {
		delete(h.tenants, n.id)
	}
}

// standing is what is known of a consumer when it asks for something.
type standing struct {
	session  *session
	tenant   *tenant
	name     string
	offer    corev1.ResourceList
	arch     string
	network  []netip.Prefix
	down     bool
	servers  []netip.Addr
	unnamed  bool
	settings Settings
	guest    *corev1.Namespace // where, if it asked for something in a namespace
}

// standing returns how the consumer stands. Host.mu is held.
func (n *tenant) standing(s *session, settings Settings) standing {
	return standing{session: s, tenant: n, name: n.name, offer: n.offer, arch: n.arch, network: n.network, down: n.down, servers: n.servers, unnamed: n.unnamed, settings: settings}
}

// admitted returns how an admitted consumer stands, or why it is refused. offer may
// be nil.
func (h *Host) admitted(id peer.ClusterID) (standing, error) {
	settings := h.cfg.Settings()
	h.mu.Lock()
	n, connected := h.tenants[id], h.session != nil && !h.session.ended
	if n == nil && connected {
		// Nobody need have spoken of it: it may be one of before the start, or have been forgotten.
		n = h.tenantLocked(id)
		defer h.cfg.Changed(id)
	}
	defer h.mu.Unlock()
	if n != nil {
		n.asked = true
	}
	switch {
	case !connected:
		return standing{}, refuse(ReasonNotReady, "this cluster's API server cannot be reached now; try again later").after(retryNotReady)
	case !n.said:
		return standing{}, unknown(id)
	case !n.admitted:
		return standing{}, refuse(ReasonNotAdmitted, "this cluster does not let %s run pods (any more)", id)
	default:
		return n.standing(h.session, settings), nil
	}
}

// place returns how a consumer stands that asks for something in a namespace, or why
// it is refused.
func (h *Host) place(id peer.ClusterID, namespace string) (standing, error) {
	st, err := h.admitted(id)
	if err != nil {
		return st, err
	}
	st.guest = st.session.namespaces.Get("", namespace)
	if st.guest == nil || owner(st.guest) != id {
		return standing{}, refuse(ReasonNotYours, "%q is not a namespace of %s here; request one", text.Excerpt(namespace), id)
	}
	return st, nil
}

// room is place for what is to be added there: it also takes an offer, and a
// namespace that stays.
func (h *Host) room(id peer.ClusterID, namespace string) (standing, error) {
	st, err := h.place(id, namespace)
	switch {
	case err != nil:
		return st, err
	case st.offer == nil:
		return standing{}, nothingOffered(id)
	case st.guest.DeletionTimestamp != nil:
		return standing{}, terminating(namespace)
	}
	return st, nil
}
