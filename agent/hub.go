package agent

import (
	"sync/atomic"

	"liqo.io/agent/agent/calls"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/proofs"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/liqo"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
)

// hub passes events about peers to the parts that act on them. Until all parts are
// made, it drops events: the parts read the present state when they start.
type hub struct {
	// told is called when the status for the service manager may have changed.
	told  func()
	wired atomic.Pointer[wiring] // nil while the parts are being made
}

// wiring are the parts that a hub connects.
type wiring struct {
	registry  *registry.Registry
	decisions *decisions.Store
	peering   *peering.Controller
	server    *endpoint.Server
	client    *client.Client
	problems  *problems.Monitor
	incoming  *calls.Incoming
	connect   *connect.Connect
	proofs    *proofs.Queue
	domains   *domains.Keeper
	liqo      *liqo.Liqo // nil: the agents peer all clusters
}

// with calls do with the parts, once they are built.
func (h *hub) with(do func(w *wiring)) {
	if w := h.wired.Load(); w != nil {
		do(w)
	}
}

// seen returns what the registry knows about a peer.
func (h *hub) seen(id peer.ClusterID) (p peer.Peer, known bool) {
	h.with(func(w *wiring) { p, known = w.registry.Peer(id) })
	return p, known
}

// joined reports whether there is a peering with a cluster whose key is trusted.
func (h *hub) joined(id peer.ClusterID) (is bool) {
	h.with(func(w *wiring) { is = w.decisions.Partner(id) })
	return is
}

// decided is called by the decision store after a decision about a peer.
func (h *hub) decided(id peer.ClusterID) {
	h.with(func(w *wiring) {
		w.peering.Enqueue(id)
		w.registry.Touch(id)
		w.domains.Remark(id)
		w.server.Recheck(id)
		w.connect.Decided(id)
		w.problems.Again()
		if w.liqo != nil {
			w.liqo.Look() // whoever installed it before they decided is not kept waiting
		}
	})
}

// enginesChanged is called when what Liqo is here changed.
func (h *hub) enginesChanged() { h.with(func(w *wiring) { w.peering.SharingChanged() }) }

// changed is called by the registry when its view of a peer changed.
func (h *hub) changed(id peer.ClusterID) {
	h.with(func(w *wiring) {
		if p, ok := w.registry.Peer(id); ok {
			if p.Phase == peer.PhaseLost {
				w.client.Forget(p.Fingerprint)
			}
			w.proofs.Phase(id, p.Phase)
		} else {
			w.proofs.Forget(id)
			w.domains.Remark(id)
		}
		w.peering.Enqueue(id)
		w.problems.Again()
		h.told()
	})
}

// viewed is called by the peering controller when a peering may have changed.
func (h *hub) viewed(id peer.ClusterID) {
	h.with(func(w *wiring) {
		w.registry.Touch(id)
		w.domains.Remark(id)
		w.incoming.PeeringChanged(id)
	})
}

// reconcile requeues a peer in the peering controller.
func (h *hub) reconcile(id peer.ClusterID) {
	h.with(func(w *wiring) { w.peering.Enqueue(id) })
}
