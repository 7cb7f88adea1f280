// Command flakes looks for tests that fail only sometimes. It compiles each package's tests once,
// and runs them again and again in random order, while it makes the machine unreliable: processors
// are busy, GOMAXPROCS is small, and the tests are stopped for moments, which delays their timers
// and their input and output alike. All that follows from a run's seed, which is printed when the run
// fails, with the command that does the same once more.
//
// It knows nothing of what is tested. Everything it starts ends with it, even when it is killed.
package main
