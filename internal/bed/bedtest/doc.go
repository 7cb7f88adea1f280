// Package bedtest has what tests on a bed need again and again: wait for a condition, run the code under test
// until the test ends, and read its log while it runs.
//
// Its deadlines bound hangs only, on machines that are busy, too. A test in which a duration matters measures it.
//
// It knows nothing of what is tested, and imports nothing of the agent's.
//
// Goroutines: one per [Run], until what it runs returns.
package bedtest
