package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// attempt tries one address from connect to answer. Exactly one of the results
// counts: Result if the error is nil.
func (c *Client) attempt(ctx context.Context, target Target, cand candidate) (Result, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	tcp, err := c.dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, cand.addr)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnreachable, Addr: cand.addr, Err: fmt.Errorf("cannot connect: %w", plain(err))}
	}
	stay := false // the connection is kept
	defer func() {
		if !stay {
			_ = tcp.Close() // an error changes nothing any more
		}
	}()
	// One way to end everything below, at the deadline and when another
	// address has won. An old deadline makes reads and writes fail at once.
	halt := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer halt()

	check := &keyCheck{memory: c.memory, self: c.self, want: target.Fingerprint}
	conn := tls.Client(tcp, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256}, // see the package comment
		InsecureSkipVerify: true,                                     // names and dates: check.verify looks at the key instead
		VerifyConnection:   check.verify,
		ServerName:         cand.name,
		ClientSessionCache: check,
		Time:               c.clock,
	})
	if err := conn.Handshake(); err != nil {
		failure := check.failure
		if failure == nil {
			failure = handshakeFailure(err)
		}
		failure.Addr = cand.addr
		return Result{}, failure
	}
	// Only now is it certain that the other end holds the key it showed.
	fail := func(reason Reason, err error) (Result, *Error) {
		return Result{}, &Error{Reason: reason, Addr: cand.addr, Got: check.got, Err: err, keyProven: true}
	}
	identity, reusable, err := ask(conn, hostOf(cand), c.kept.room(check.got))
	if err != nil {
		reason := ReasonBadAnswer
		if lost(err) {
			reason, err = ReasonUnreachable, fmt.Errorf("the connection broke before the answer was there: %w", plain(err))
		}
		return fail(reason, err)
	}
	if !reusable {
		_ = conn.Close() // the answer is complete; how the connection ends changes nothing
	}
	if target.ID != "" && identity.ClusterID != target.ID {
		return fail(ReasonWrongID, fmt.Errorf("says it is cluster %s, not %s", identity.ClusterID, target.ID))
	}
	if stay = reusable && halt(); stay {
		c.kept.put(check.got, &keptConn{tcp: tcp, tls: conn, cand: cand})
	}
	return resultOf(identity, check.got, cand), nil
}

// hostOf is what the request's Host header says: RFC 6874 section 4 keeps the
// zone of an address out of it.
func hostOf(cand candidate) string {
	if cand.name != "" {
		return net.JoinHostPort(cand.name, fmt.Sprint(cand.addr.Port()))
	}
	return netip.AddrPortFrom(cand.addr.Addr().WithZone(""), cand.addr.Port()).String()
}

// keyCheck looks at the key of one connection and finds the TLS session for
// it. It is used by that connection's goroutine only.
type keyCheck struct {
	memory  *memory
	self    peer.Fingerprint
	want    peer.Fingerprint // zero: any
	got     peer.Fingerprint
	failure *Error // why verify refused, without the address
}

// verify is tls.Config.VerifyConnection, which unlike VerifyPeerCertificate
// runs on resumed connections too.
func (k *keyCheck) verify(state tls.ConnectionState) error {
	certs := state.PeerCertificates
	if state.DidResume && len(certs) > 0 {
		// The certificates are those of the first handshake, remembered with
		// the session after they had been verified. That the session belongs
		// to the expected key is checked again, its signatures are not.
		k.got = peer.FingerprintOf(certs[len(certs)-1].RawSubjectPublicKeyInfo)
	} else {
		fp, err := trust.VerifyChain(certs, time.Time{})
		if err != nil {
			return k.refuse(ReasonBadAnswer, fmt.Errorf("does not show the certificate of a liqo-agent: %w", err))
		}
		k.got = fp
	}
	switch {
	case k.got == k.self:
		return k.refuse(ReasonSelf, errors.New("is this cluster itself"))
	case !k.want.IsZero() && k.got != k.want:
		return k.refuse(ReasonWrongKey, fmt.Errorf("holds key %s, not %s: another cluster has this address, or the peer has a new key",
			k.got, k.want))
	}
	return nil
}

func (k *keyCheck) refuse(reason Reason, err error) error {
	k.failure = &Error{Reason: reason, Got: k.got, Err: err}
	return err
}

// Get is tls.ClientSessionCache.Get. The key crypto/tls makes up from name and
// address is not used: sessions belong to keys.
func (k *keyCheck) Get(string) (*tls.ClientSessionState, bool) {
	return k.memory.session(k.want)
}

// Put is tls.ClientSessionCache.Put. crypto/tls calls it after the handshake,
// so k.got is proven, except to drop a session that has expired.
func (k *keyCheck) Put(_ string, state *tls.ClientSessionState) {
	if state == nil {
		k.memory.dropSession(k.want)
		return
	}
	k.memory.keepSession(k.got, state)
}

// handshakeFailure tells what answers but does not speak as agents do from
// what does not answer.
func handshakeFailure(err error) *Error {
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &record):
		return &Error{Reason: ReasonNotTLS, Err: errors.New("does not speak TLS")}
	case errors.As(err, &op) && op.Op == "remote error":
		return &Error{Reason: ReasonNotTLS, Err: fmt.Errorf("refuses to speak TLS 1.3 with us: %w", op.Err)}
	case lost(err):
		return &Error{Reason: ReasonUnreachable, Err: fmt.Errorf("accepted the connection but did not complete TLS: %w", plain(err))}
	default:
		return &Error{Reason: ReasonNotTLS, Err: fmt.Errorf("does not speak TLS 1.3: %w", err)}
	}
}

// lost reports whether err is about the connection and not about what came
// through it.
func lost(err error) bool {
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &errno)
}

// plain strips what package net wraps around an error: the address is known,
// and "i/o timeout" says less than it could.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		return sys.Err
	}
	return err
}
