// Package sharing turns peerings into nodes and pods: it runs the hosts of consumers,
// the virtual nodes, the offloaded pods and the kubelet API while there is a connection
// to the API server, and keeps a connection to each provider. What is shared, the
// peering controller decides.
//
// Goroutines: Sharing.Run starts one per part, under the supervisor. Everything else may
// be called from any goroutine.
package sharing
