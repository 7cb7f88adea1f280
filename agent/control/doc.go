// Package control is the agent's local control socket: HTTP and JSON over a
// unix socket, for the command line and for scripts on the same machine.
//
// Its types are the documented JSON contract (docs/cli.md): fields are added,
// never renamed or removed. Server answers from a Backend, which the agent
// implements; Client is what the command line uses.
//
// Who may connect is decided by the file system alone: the socket is 0660, and
// belongs to group "liqo-agent" where that group exists. The package therefore
// must not listen on anything but a unix socket, and must not hold any state of
// its own about peers: answers come from the Backend at that moment, and decisions are
// validated here and made there. Who decided is taken from the kernel, never from the
// request.
//
// Goroutines: Server.Run starts the accept loop, net/http one goroutine per
// connection. Server.Publish may be called from any goroutine and never
// blocks; each watcher has a bounded buffer and is cut off, with a reason, when
// it does not keep up. Client starts none of its own.
package control
