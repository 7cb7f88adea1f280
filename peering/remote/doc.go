// Package remote does at the peers what is to be done there: it asks to be let
// in, looks at what they say is between us, keeps our PeeringRequest and our
// Advertisement at theirs as they are to be, and tells them when to look at us.
//
// A [Syncer] takes the desired state at one peer (Set) and returns what is known
// (Get, Config.Changed). Everything is level-triggered: a difference set, a
// notice (Check) and a timer all say only "look at this peer", and one look
// compares what the peer says with what is to be and does what differs. In steady
// state a look is one small request on a connection that is open already, and
// changes nothing.
//
// # What it must not do
//
// Unknown is never gone. While a peer's API server is down, or the peer does not
// answer, nothing is concluded and nothing written; only deletions that are owed
// are said to its agent. A request that the peer ended is not made again, unless
// what is to be is said to be fresh, and then once. An offer goes only where it is
// welcome. Nothing is written that is there already, nor again and again what the
// other side does not take over.
//
// It decides nothing: whether to ask, to request or to offer is the caller's
// business, and so is whom to trust. A peer without a key in its target gets
// nothing at all. The secret of an invite is sent and then forgotten; it is in no
// error and no log line.
//
// # Deletions that are owed
//
// Once RemoteSpec says that an object of ours is to be gone, that is owed to the peer
// until a State from it confirms it. Setting the zero RemoteSpec ends everything else
// at once, but what is owed then is still tried in the background, where the peer
// was last, with the key it had: for an hour in all, with pauses that grow to 30
// s. After that it is given up, with a line in the log: by then the other side has
// cleaned up by itself, because it sees that we do not consume, or that we are
// gone. Another RemoteSpec that is not zero counts as the last word: what it does not
// say to be gone is not owed any more. Forget ends everything at once, what is
// owed included, and interrupts what is under way: it is for keys that are no
// longer trusted.
//
// # Goroutines
//
// Run has one that waits for what is due, and one for each peer that is being
// talked to at the moment, at most Config.Workers, all ended when it returns.
// Peers that nothing is to be done with have none. The other methods may be called
// from any goroutine at any time and do not wait for the network.
package remote
