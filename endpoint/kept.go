package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// keptTimeout is how long an answer on a kept connection is waited for before a
// new connection is tried. The peer may have restarted, or a box on the way may
// have forgotten the connection without telling.
const keptTimeout = time.Second

var errOtherID = errors.New("says it is another cluster")

// kept holds connections on which checks went well, for the next check: asking
// again on one costs a fifth of a resumed handshake, and it can only be answered
// by the holder of the key that opened it. One per key, and no more than limit:
// with more peers than that the others are connected to anew each time, because
// an idle connection costs both ends memory. Its methods may be called from any
// goroutine; a connection belongs to whoever took it.
type kept struct {
	limit int

	mu     sync.Mutex
	byKey  map[peer.Fingerprint]*keptConn
	closed bool
}

type keptConn struct {
	tcp  *net.TCPConn
	tls  *tls.Conn
	cand candidate
}

// close ends the connection. It was not in use: how it ends changes nothing.
func (k *keptConn) close() { _ = k.tls.Close() }

func newKept(limit int) *kept {
	return &kept{limit: limit, byKey: make(map[peer.Fingerprint]*keptConn)}
}

// take hands out the connection with the holder of fp, nil when there is none.
func (k *kept) take(fp peer.Fingerprint) *keptConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	conn := k.byKey[fp]
	delete(k.byKey, fp)
	return conn
}

// room reports whether a connection with the holder of fp would be kept.
func (k *kept) room(fp peer.Fingerprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.roomLocked(fp)
}

// roomLocked is room with k.mu held.
func (k *kept) roomLocked(fp peer.Fingerprint) bool {
	return !k.closed && k.byKey[fp] == nil && len(k.byKey) < k.limit
}

// put keeps a connection, or closes it when there is no room.
func (k *kept) put(fp peer.Fingerprint, conn *keptConn) {
	k.mu.Lock()
	room := k.roomLocked(fp)
	if room {
		k.byKey[fp] = conn
	}
	k.mu.Unlock()
	if !room {
		conn.close()
	}
}

// drop closes the connection with the holder of fp.
func (k *kept) drop(fp peer.Fingerprint) {
	if conn := k.take(fp); conn != nil {
		conn.close()
	}
}

// end closes all connections and keeps none from now on.
func (k *kept) end() {
	k.mu.Lock()
	all := k.byKey
	k.byKey, k.closed = nil, true
	k.mu.Unlock()
	for _, conn := range all {
		conn.close()
	}
}

// again asks on a kept connection, if that leads to the address which is the
// most promising now. It reports false, with the connection closed, when a new
// one has to be made to know more.
func (c *Client) again(ctx context.Context, target Target, candidates []candidate) (Result, bool) {
	conn := c.kept.take(target.Fingerprint)
	if conn == nil {
		return Result{}, false
	}
	if len(candidates) == 0 || candidates[0] != conn.cand {
		conn.close()
		return Result{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, keptTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.tcp.SetDeadline(time.Unix(1, 0)) })
	identity, reusable, err := ask(conn.tls, hostOf(conn.cand), true)
	stopped := stop()
	if err == nil && target.ID != "" && identity.ClusterID != target.ID {
		err = errOtherID
	}
	if err != nil {
		conn.close()
		return Result{}, false
	}
	result := resultOf(identity, target.Fingerprint, conn.cand)
	if reusable && stopped {
		c.kept.put(target.Fingerprint, conn)
	} else {
		conn.close()
	}
	return result, true
}

// resultOf is what an answer from a candidate amounts to.
func resultOf(identity peer.Identity, key peer.Fingerprint, cand candidate) Result {
	result := Result{Identity: identity, Fingerprint: key, Addr: cand.addr, URL: cand.url}
	if result.URL == "" {
		result.URL = endpointURL(cand.addr)
	}
	return result
}
