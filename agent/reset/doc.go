// Package reset takes an agent back to the state after installation: it ends all
// peerings and tells the peers, deletes what the agent made in the API server and in the
// network of this machine, and empties the state directory. It also settles which cluster
// this is afterwards.
//
// A [Resetter] belongs to a session: it parts with the peers, and ends the session.
// [Finish] does the rest before the next session, when nothing uses the state. A
// [Progress] holds the progress, from the first peer to the last file. A reset that began
// is recorded in the state directory (package statedir), so it continues after an
// interruption; [Stopped] resets an agent that does not run.
//
// The package must not decide about peers itself: the decision store does, as for a person.
//
// Goroutines: Resetter.Run and Claim.Run are one each, for as long as their session;
// everything else may be called from any goroutine.
package reset
