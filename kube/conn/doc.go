// Package conn is the connection to the local API server: it finds the kubeconfig
// and follows it, knows whether the API server answers, and connects again when it
// does so, or when another kubeconfig takes the place of the one in use.
//
// [Link.Run] has one function called for each connection, with a [Session]: what is
// needed for a client whose requests tell how the connection is, and a way for requests
// of others that do not. The function prepares what it needs, calls [Session.Connected] and works until
// its context ends, whose cause says why.
//
// A connection counts as lost when requests have failed for two seconds without one
// success in between. Which permissions are missing, how far the API server's clock is
// ahead and what was counted also comes from the requests that are sent anyway:
// nothing is asked for it.
//
// # What it must not do
//
// It knows nothing of what is done with the connection, and decides nothing by what is
// in the API server. It logs changes of the connection once each, and what a Session is
// told once per connection.
//
// # Goroutines
//
// New starts none. [Link.Run] has one that looks for a changed kubeconfig, by a stat
// every three seconds. All methods may be called from any goroutine at any time.
package conn
