// Package liqotest tests what Liqo 1.x does, with its own controllers in two clusters of the test bed, and no agent: what the agent
// relies on when it peers clusters by Liqo, and what docs/liqo.md says about Liqo. Each side is asked and told by its own client
// only; what passes between the two is in values. [ByHand] is for tests that begin with such a pair.
//
// The tests are skipped unless `make test-liqo` has built Liqo's programs.
package liqotest
