// Package socket serves the control socket: HTTP and JSON over a unix socket, for the
// command line and for scripts on the same machine. Package control has the types, and
// package client calls it.
//
// The file system alone decides who may connect: the socket has mode 0660, and belongs to
// the group liqo-agent if that exists. So the package must not listen on anything but a
// unix socket. It validates requests, and has no state about peers: a Backend, which the
// agent implements, answers and decides. The kernel, not the request, says who decided.
//
// Goroutines: Server.Run starts the accept loop, net/http one goroutine per connection.
// Server.Publish may be called from any goroutine and never blocks: each watcher has a
// bounded buffer, and is disconnected with a reason if it does not keep up.
package socket
