// Package work is the queue of every controller here: keys that are reconciled, each
// by one worker at a time, on client-go's delaying workqueue.
//
// A reconcile returns an [Outcome]: it is done, wants to be called again after a
// while, failed and is to be retried, or failed for good. [Queue.Run] is the one place
// that turns this into when the key is next due. [Backoff], [Sleep], [RetryAfter] and [Wake] are
// for loops that have no keys.
//
// # What it must not do
//
// It knows nothing of objects or API servers but how their errors ask for a pause, and
// it does not log: [Config.Observe] is told how each attempt ended.
//
// # Goroutines
//
// New starts none. [Queue.Run] has two, and one for each key that is being reconciled;
// all have ended when it returns.
package work
