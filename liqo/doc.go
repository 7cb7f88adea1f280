// Package liqo drives Liqo 1.x in the local API server: it says what Liqo runs here, and has
// Liqo's controllers peer this cluster with others, by the plans of package liqo/exchange.
//
// A [Liqo] takes the desired state of each pair (Drive) and returns its state; when
// that changes, Config.Changed is told. It follows Liqo's objects while Liqo is there, and those
// of the exchange from the first pair on. Where there is no Liqo, that costs one request for each
// connection to the API server, and one for each Look.
//
// # What it must not do
//
// It writes to the local API server only, and there only in namespaces that are in the agent's
// care. It decides neither whom to peer with nor by which engine: that is the caller's business.
// Nothing of a pair is deleted because something could not be read.
//
// # Goroutines
//
// Run has one that looks for Liqo; while it is there, one for each kind of object, one that
// waits for what is due, and one for each direction of a pair that is being worked on, at most workers. All of
// them have ended when it returns. The other methods may be called from any goroutine at any
// time; only Answer waits.
package liqo
