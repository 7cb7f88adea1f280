// Package reset takes an agent back to the state after installation: it ends all
// peerings and tells the peers, deletes what the agent made in the API server, and
// empties the state directory. It also settles which cluster this is afterwards.
//
// A [Resetter] belongs to a session: it parts with the peers, and ends the session.
// [Finish] does the rest before the next one begins, when nothing uses the state. A
// [Progress] tells how far that is, from the first peer to the last file. What was
// begun is kept in the state directory (package statedir), so that it goes on after
// whatever cut it off; [Stopped] does the same for an agent that does not run.
//
// The package must not decide about peers itself: it has the decision store do so, as a person
// would.
//
// Goroutines: Resetter.Run and Claim.Run are one each, for as long as their session;
// everything else may be called from any goroutine.
package reset
