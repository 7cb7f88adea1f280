// Package urls has the registry probe the URLs that people gave for clusters: in the
// configuration, on the command line and in ForeignClusters. It does not probe itself.
//
// Goroutines: Prober.Run is one, for as long as its session.
package urls
