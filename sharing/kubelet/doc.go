// Package kubelet is the kubelet API of the virtual nodes: what the local API
// server calls for kubectl logs, exec, attach, cp and port-forward, and metrics-server
// and others for what pods use. One HTTPS port serves all virtual nodes of this cluster.
//
// A call names a pod of this cluster. Config.Find says at which provider it runs
// and under which name, and the call becomes the same one at the provider's API
// server. Logs are streamed. The streams of exec, attach and port-forward are
// upgrades to SPDY or WebSocket, and both protocols are the same between kubectl
// and API server as between API server and kubelet: so the upgrade is made again
// at the provider, with the header that names the protocol, and from then on bytes
// are copied both ways. One thing is added: an exit status where the provider's side
// ended without one, which callers would take for success.
//
// What pods use is asked for by node, and a kubelet's paths name none. metrics-server goes
// by an annotation of the node to ResourcePath, and the API server's proxy says which node
// it was asked for. Others get the pods of all virtual nodes, without totals.
//
// # Who may call
//
// Who has a client certificate of the API server's client CA (ConfigMap
// kube-system/extension-apiserver-authentication), or a bearer token that a
// TokenReview accepts, and whom a SubjectAccessReview permits what kubelets ask
// for: the subresources of nodes. Nobody is anonymous, and there is no port
// without TLS.
//
// Connections, questions to the API server and streams are bounded for each proven
// caller; whoever has proven nothing is bounded by source and altogether, and gives
// way.
//
// # What it must not do
//
// It makes no node and writes no status: where it is reached and how its
// certificate stands is told by Where and State. It knows nothing about endpoints
// of peers, and tells a provider nothing about the caller.
//
// # Goroutines
//
// Run owns one that accepts, those that follow the client CA and the certificate,
// and one per connection (two while its streams are copied). All have ended when
// Run returns.
package kubelet
