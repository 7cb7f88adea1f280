// Package reload has the configuration in use, and changes it while the agent runs: when
// the file is read again, and when the ClusterConfig in the API server sets something on
// top. A [Follower] says what a change needs: the parts apply it, or are rebuilt, or the
// agent has to be restarted.
//
// Goroutines: Follower.Run is one, for as long as its session.
package reload
