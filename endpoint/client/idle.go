package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// idleAnswerTimeout is how long an answer on an idle connection is waited for before a
// new connection is tried. The peer may have restarted, or a box on the way may
// have forgotten the connection without telling.
const idleAnswerTimeout = time.Second

// idleLife is for how long an idle connection may still be open: an agent closes one
// on which no request came for 75 seconds.
const idleLife = 2 * time.Minute

var errOtherID = errors.New("says it is another cluster")

// idleConns holds connections on which checks and calls went well, for the next ones
// to the same peer: asking again on one costs a fifth of a resumed handshake, and
// it can only be answered by the holder of the key that opened it. One per key,
// and no more than limit: with more peers than that the others are connected to
// anew each time, because an idle connection costs both ends memory. One that can
// carry calls takes the place of one that cannot, and any one that of one whose peer has
// closed it meanwhile: nobody takes that out who does not ask that key any more. Its
// methods may be called from any goroutine; a connection belongs to whoever took it.
type idleConns struct {
	limit int

	mu     sync.Mutex
	byKey  map[peer.Fingerprint]idleConn
	closed bool
}

// idleConn is a connection that nobody uses since then.
type idleConn struct {
	*Conn
	since time.Time
}

func newIdleConns(limit int) *idleConns {
	return &idleConns{limit: limit, byKey: make(map[peer.Fingerprint]idleConn)}
}

// take hands out the connection with the holder of fp, nil when there is none.
func (k *idleConns) take(fp peer.Fingerprint) *Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	conn := k.byKey[fp].Conn
	delete(k.byKey, fp)
	return conn
}

// room reports whether a connection with the holder of fp would be kept.
func (k *idleConns) room(fp peer.Fingerprint, e epoch) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	room, _ := k.place(fp, e)
	return room
}

// place says whether a connection of epoch e with the holder of fp is to be kept,
// and whose has to go for it, fp's own if it has one. k.mu is held.
func (k *idleConns) place(fp peer.Fingerprint, e epoch) (room bool, instead peer.Fingerprint) {
	switch old := k.byKey[fp]; {
	case k.closed:
		return false, fp
	case old.Conn != nil:
		return old.epoch < e, fp
	case len(k.byKey) < k.limit:
		return true, fp
	}
	instead = fp
	for other, old := range k.byKey {
		if time.Since(old.since) > idleLife {
			return true, other
		}
		if old.epoch < e {
			room, instead = true, other
		}
	}
	return room, instead
}

// put keeps a connection, or closes it when there is no room.
func (k *idleConns) put(c *Conn) {
	fp := c.shown.Fingerprint
	k.mu.Lock()
	loser := c
	if room, instead := k.place(fp, c.epoch); room {
		loser = k.byKey[instead].Conn
		delete(k.byKey, instead)
		k.byKey[fp] = idleConn{c, time.Now()}
	}
	k.mu.Unlock()
	if loser != nil {
		loser.Close()
	}
}

// putIf is put if the connection can be used again, and closes it otherwise.
func (k *idleConns) putIf(reusable bool, c *Conn) {
	if reusable {
		k.put(c)
	} else {
		c.Close()
	}
}

// drop closes the connection with the holder of fp.
func (k *idleConns) drop(fp peer.Fingerprint) {
	if conn := k.take(fp); conn != nil {
		conn.Close()
	}
}

// end closes all connections and keeps none from now on.
func (k *idleConns) end() {
	k.mu.Lock()
	all := k.byKey
	k.byKey, k.closed = nil, true
	k.mu.Unlock()
	for _, conn := range all {
		conn.Close()
	}
}

// leadsTo reports whether the connection goes to the target's address that is the
// most promising now.
func (k *Conn) leadsTo(target peer.Target, candidates []candidate) bool {
	if len(candidates) == 0 {
		return k.cand.url != "" && k.url == target.URL
	}
	if candidates[0].lookup != "" {
		return k.cand.url != "" && k.cand.url == candidates[0].lookup
	}
	return candidates[0].same(k.cand)
}

// dialedFor reports whether the same addresses led to the connection when it was
// made. What comes before it in them did not answer then.
func (k *Conn) dialedFor(target peer.Target) bool {
	return k.url == target.URL && slices.Equal(k.addrs, target.Addrs) && slices.EqualFunc(k.places, target.Places, peer.Place.Equal)
}

// identifyOnIdle asks on an idle connection, if that leads to the address which is the
// most promising now. It reports false, with the connection closed, when a new
// one has to be made to know more.
func (c *Client) identifyOnIdle(ctx context.Context, target peer.Target, candidates []candidate) (Result, bool) {
	k := c.idle.take(target.Fingerprint)
	if k == nil {
		return Result{}, false
	}
	if !k.leadsTo(target, candidates) {
		k.Close()
		return Result{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.idleAnswer)
	defer cancel()
	stop := abortOnDone(ctx, k.tcp)
	said, reusable, err := requestIdentity(k.tls, hostOf(k.cand), true)
	reusable = stop() && reusable
	if err == nil && target.ID != "" && said.identity.ClusterID != target.ID {
		err = errOtherID
	}
	if err != nil {
		k.Close()
		return Result{}, false
	}
	result := k.result(target)
	result.Identity, result.Protocol, result.Date = said.identity, said.protocol, said.date
	c.idle.putIf(reusable, k)
	return result, true
}
