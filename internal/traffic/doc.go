// Package traffic makes and answers the traffic by which the benchmarks measure a network: streams of TCP, questions and
// answers of UDP one after another, and packets of UDP with a few under way at a time.
//
// What arrived is counted as the receiver says, by acknowledgements, so the sender alone knows the results.
//
// # What this package must not do
//
// It knows nothing of what is measured, and nothing of namespaces: it uses that of the calling thread.
//
// # Goroutines
//
// [Serve] starts one for each connection; [Open] one for each stream, which ends with Close.
package traffic
