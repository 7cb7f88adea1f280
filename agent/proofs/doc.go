// Package proofs passes to the decision store what checks and calls prove: the keys of
// peers, their return after an absence, and the end of certificates. A [Queue] does so
// on a goroutine of its own, because the decision store may write to the disk, and
// neither a check nor the registry must wait for that.
//
// Goroutines: Queue.Run and SuspendTrust are one each, for as long as their session. All
// other methods may be called from any goroutine, and do not block.
package proofs
