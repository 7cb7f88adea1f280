package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/control"
)

// caller is the user of the process at the other end of a connection, from the kernel
// (SO_PEERCRED, unix(7)). Nothing that the client sends can change it.
type caller struct {
	net.Addr
	uid   uint32
	known bool
}

// callerKey is the context key of the caller.
type callerKey struct{}

// Accept returns the next connection, whose RemoteAddr is a caller. Of a connection,
// only the address reaches the handlers through the wrappers of net/http.
func (s *socket) Accept() (net.Conn, error) {
	conn, err := s.AcceptUnix()
	if err != nil {
		return nil, err
	}
	who := caller{Addr: conn.RemoteAddr()}
	if cred, err := credentials(conn); err == nil {
		who.uid, who.known = cred.Uid, true
	}
	return &callerConn{UnixConn: conn, who: who}, nil
}

// callerConn is a connection with its caller.
type callerConn struct {
	*net.UnixConn
	who caller
}

func (c *callerConn) RemoteAddr() net.Addr { return c.who }

func credentials(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, failed)
}

// withCaller puts the caller of a connection into the context of its requests.
func withCaller(ctx context.Context, conn net.Conn) context.Context {
	if who, ok := conn.RemoteAddr().(caller); ok {
		return context.WithValue(ctx, callerKey{}, who)
	}
	return ctx
}

// mayReset returns an error unless the caller is root or the agent's own user: only
// these may reset or stop the agent.
func mayReset(ctx context.Context) error {
	who, ok := ctx.Value(callerKey{}).(caller)
	if ok && who.known && (who.uid == 0 || int(who.uid) == os.Geteuid()) {
		return nil
	}
	return &control.Error{Kind: control.ErrPermission, Message: "only root and the agent's own user may reset or stop the agent; members of the group decide about peers", Advice: "sudo liqo-agent reset"}
}

// by returns the caller of a request, for people and the history.
func by(ctx context.Context) string {
	who, ok := ctx.Value(callerKey{}).(caller)
	if !ok || !who.known {
		return "somebody (command line)"
	}
	id := strconv.FormatUint(uint64(who.uid), 10)
	name := "number " + id
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		name = u.Username
	}
	return fmt.Sprintf("user %s (command line)", name)
}
