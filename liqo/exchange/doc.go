// Package exchange decides what is to be done so that Liqo's controllers of two clusters peer
// them: which objects are to be in the API server of this cluster, and what is said to the
// agent of the other one.
//
// A consumer asks its provider again and again: with its Liqo ID, and once it has signed the
// nonce of the answer, with its Tenant, until the answer has its Identity. Each plan is made
// from what is in the API server and the last answer, so a step that is lost, done twice or
// out of order changes nothing, and nothing has to be remembered.
//
// With the same calls and answers both say what it takes to connect their networks. That is the same for both
// (network.go), and the business of the consumer where they consume each other.
//
// [PlanConsumer] and [PlanProvider] are pure. Applying a plan leaves one without actions, until
// Liqo's controllers or the other cluster go on.
//
// # Whose objects
//
// A namespace stands for one other cluster, in both directions. Its label
// discovery.liqo.io/cluster-id says by which peer of the agent it is used; without it, it is
// somebody else's, as of a pair that liqoctl peered, and nothing in it is touched. A person who
// adds the label puts it into the agent's care. So no peer can say an ID of Liqo that another
// cluster has.
//
// # What this package must not do
//
// It does no I/O, and believes nothing that package document has not checked.
//
// # Goroutines
//
// None.
package exchange
