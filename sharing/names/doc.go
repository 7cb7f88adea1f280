// Package names answers the DNS queries of guests as the cluster that they come from would.
//
// A guest asks for X.NS.svc.<domain of the consumer>. The cluster DNS here knows that name as
// X.<guest namespace for NS>.svc.<domain of this cluster>: it is asked for that, and names in
// its answer are written back. All other names in either domain, and names of nodes of this
// cluster, do not exist for guests, so that no name silently means a Service or a machine of this
// cluster. Names outside both are asked as they are. The API server of the consumer is where
// [Guest.Server] says, without asking anybody.
//
// Who asks is known by the source address of the query only. What both sides send is
// untrusted: an answer is made anew from what was understood of the messages.
//
// The package must not know what a pod is, nor how queries reach it.
//
// Goroutines: Server.Run has one that reads each UDP socket, one that accepts on each TCP
// socket, one for each query and TCP connection, all within limits, and one that
// asks the cluster DNS whether it is one. All have ended when Run returns.
package names
