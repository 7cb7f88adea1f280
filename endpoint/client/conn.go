package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"liqo.io/agent/endpoint/gapless"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// dialRequest says to whom to connect, and what to show there.
type dialRequest struct {
	target peer.Target
	// cert is shown if the other end asks; nil for nothing.
	cert *tls.Certificate
	// epoch is that of cert; 0 for a check, which shows nothing.
	epoch epoch
}

// curves are what the client offers for the key exchange; see the package
// comment.
func (q *dialRequest) curves() []tls.CurveID {
	if q.epoch == 0 {
		return checkCurves
	}
	return callCurves
}

var (
	checkCurves = []tls.CurveID{tls.X25519, tls.CurveP256}
	callCurves  = []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256}
)

// Conn is a connection to an endpoint that has proven its key. It belongs to
// whoever made it or took it.
type Conn struct {
	tcp   *net.TCPConn
	tls   *tls.Conn
	cand  candidate
	shown trust.Shown
	epoch epoch // of what we showed on it
	// What follows are the target's, when it was made.
	places []peer.Place
	addrs  []netip.AddrPort
	url    string
}

// Close ends a connection that is not in use: how it ends changes nothing.
func (k *Conn) Close() { _ = k.tls.Close() }

// Abort ends the connection at once, without the farewell of TLS. Whoever uses it
// sees that.
func (k *Conn) Abort() { _ = k.tcp.Close() }

// TCP returns the connection below TLS.
func (k *Conn) TCP() *net.TCPConn { return k.tcp }

// Addr returns the address at the other end.
func (k *Conn) Addr() netip.AddrPort { return k.cand.addr }

// Proves reports whether the other end has proven that key, or one that succeeded it.
func (k *Conn) Proves(key peer.Fingerprint) bool {
	return k.shown.Fingerprint == key || k.shown.Succeeds(key)
}

// Serves reports whether the connection leads where the target is said to be now.
func (k *Conn) Serves(target peer.Target) bool {
	candidates, _ := candidatesFor(target)
	return k.leadsTo(target, candidates) || k.dialedFor(target)
}

// Current reports whether we would still show the same of ourselves as we did on k.
func (c *Client) Current(k *Conn) (bool, error) {
	_, epoch, err := c.presented.certificate()
	return err == nil && k.epoch == epoch, err
}

// abortOnDone fails every read and write on the connection from the moment that ctx
// ends, by a deadline in the past. stop takes that back, and reports false when it is
// too late.
func abortOnDone(ctx context.Context, tcp *net.TCPConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
}

// open connects to one address and proves the key behind it. ctx bounds that, and
// not what becomes of the connection.
func (c *Client) open(ctx context.Context, q dialRequest, cand candidate) (*Conn, *Error) {
	tcp, err := c.dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, cand.addr)
	if err != nil {
		return nil, &Error{Reason: ReasonUnreachable, Addr: cand.addr, Err: fmt.Errorf("cannot connect: %w", plain(err))}
	}
	stop := abortOnDone(ctx, tcp)
	check := &verifier{client: c, request: &q, name: cand.name}
	k := &Conn{tcp: tcp, cand: cand, epoch: q.epoch, places: q.target.Places, addrs: q.target.Addrs, url: q.target.URL}
	k.tls = tls.Client(&gapless.Conn{Conn: tcp}, &tls.Config{
		MinVersion:           tls.VersionTLS13,
		CurvePreferences:     q.curves(),
		InsecureSkipVerify:   true, // names and dates: verifier.verify checks the key instead
		VerifyConnection:     check.verify,
		GetClientCertificate: check.certificate,
		ServerName:           cand.name,
		ClientSessionCache:   check,
		Time:                 c.clock,
	})
	err = k.tls.Handshake()
	if !stop() && err == nil {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		_ = tcp.Close() // an error changes nothing any more
		failure := check.failure
		if failure == nil {
			failure = handshakeFailure(err)
		}
		failure.Addr = cand.addr
		return nil, failure
	}
	// Only now is it certain that the other end holds the key it showed.
	k.shown = check.shown
	if q.epoch == 0 && check.resumed {
		k.epoch = check.offered.epoch
	}
	return k, nil
}

// identifyAt tries one address from connect to answer. Exactly one of the results
// counts: Result if the error is nil.
func (c *Client) identifyAt(ctx context.Context, target peer.Target, cand candidate) (Result, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	k, failure := c.open(ctx, dialRequest{target: target}, cand)
	if failure != nil {
		return Result{}, failure
	}
	stop := abortOnDone(ctx, k.tcp)
	said, reusable, err := requestIdentity(k.tls, hostOf(cand), c.idle.room(k.shown.Fingerprint, k.epoch))
	reusable = stop() && reusable
	if err == nil && target.ID != "" && said.identity.ClusterID != target.ID {
		k.Close()
		return Result{}, k.failure(ReasonWrongID, fmt.Errorf("says it is cluster %s, not %s", said.identity.ClusterID, target.ID))
	}
	if err != nil {
		k.Close()
		return Result{}, k.Broken(err)
	}
	result := k.result(target)
	result.Identity, result.Protocol, result.Date = said.identity, said.protocol, said.date
	c.idle.putIf(reusable, k)
	return result, nil
}

// failure is what went wrong after the key was proven.
func (k *Conn) failure(reason Reason, err error) *Error {
	return &Error{Reason: reason, Addr: k.cand.addr, Got: k.shown.Fingerprint, Err: err, keyProven: true}
}

// Broken returns the failure of a request: the connection's, or the answer's.
func (k *Conn) Broken(err error) *Error {
	if isConnError(err) {
		return k.failure(ReasonUnreachable, fmt.Errorf("the connection broke before the answer was there: %w", plain(err)))
	}
	return k.failure(ReasonBadAnswer, err)
}

// result says who is at the other end, as far as the handshake does, for who looked
// for a target: the connection may have been made for another.
func (k *Conn) result(target peer.Target) Result {
	result := Result{Fingerprint: k.shown.Fingerprint, Shown: k.shown, Addr: k.cand.addr, URL: k.cand.url}
	if !slices.Contains(target.Hosts, result.Shown.Name) {
		result.Shown.Name = ""
	}
	if result.URL == "" {
		result.URL = endpointURL(k.cand.addr)
	}
	return result
}

// hostOf is what the request's Host header says: RFC 6874 section 4 keeps the
// zone of an address out of it.
func hostOf(cand candidate) string {
	if cand.name != "" {
		return net.JoinHostPort(cand.name, fmt.Sprint(cand.addr.Port()))
	}
	return netip.AddrPortFrom(cand.addr.Addr().WithZone(""), cand.addr.Port()).String()
}

// verifier checks the key of one connection and finds the TLS session for
// it. It is used by that connection's goroutine only.
type verifier struct {
	client  *Client
	request *dialRequest
	name    string      // the host name that was connected to; "" for an address
	offered session     // what was offered to be resumed
	resumed bool        // the other end took it
	shown   trust.Shown // what the other end proved, once the handshake is over
	failure *Error      // why verify refused, without the address
}

// verify is tls.Config.VerifyConnection, which unlike VerifyPeerCertificate
// runs on resumed connections too.
func (k *verifier) verify(state tls.ConnectionState) error {
	k.resumed = state.DidResume
	var err error
	k.shown, err = k.prove(state.PeerCertificates)
	if err != nil {
		return k.refuse(ReasonBadAnswer, fmt.Errorf("does not show the certificate of a liqo-agent: %w", err))
	}
	want, got := k.request.target, k.shown.Fingerprint
	switch {
	case got == k.client.presented.fingerprint():
		return k.refuse(ReasonSelf, errors.New("is this cluster itself"))
	case !want.Fingerprint.IsZero() && got != want.Fingerprint && !k.shown.Succeeds(want.Fingerprint):
		return k.refuse(ReasonWrongKey, fmt.Errorf("holds key %s, not %s: another cluster has this address, or the peer has a new key",
			got, want.Fingerprint))
	case k.request.epoch > 0 && want.ID != "" && k.shown.ID != "" && k.shown.ID != want.ID:
		// Identify leaves this to the answer, which may be newer.
		k.client.sessions.drop(want.Fingerprint)
		return k.refuse(ReasonWrongID, fmt.Errorf("shows a certificate of cluster %s, not %s", k.shown.ID, want.ID))
	}
	return nil
}

// prove returns what the certificates of the other end prove. Those of a resumed
// session are from its first handshake, remembered after they had been verified:
// which of them holds the expected key is looked at again, the signature is not.
// Where there are more of them than that takes, they may prove more.
func (k *verifier) prove(certs []*x509.Certificate) (trust.Shown, error) {
	want := k.request.target.Fingerprint
	if k.resumed && k.name == "" && len(certs) <= 2 {
		for _, cert := range certs {
			if peer.FingerprintOf(cert.RawSubjectPublicKeyInfo) == want {
				return trust.Shown{Fingerprint: want, ID: k.offered.id, CA: cert}, nil
			}
		}
	}
	if k.name == "" {
		return trust.Verify(certs, time.Time{})
	}
	shown, err := trust.VerifyNamed(certs, k.name, k.client.roots, time.Now())
	if err != nil && len(certs) > 0 && peer.FingerprintOf(certs[0].RawSubjectPublicKeyInfo) == want {
		// It is the expected key all the same. That nobody vouches for the name any
		// more, or that our clock is wrong, must not cut off a peer that is known.
		return trust.Shown{Fingerprint: want}, nil
	}
	return shown, err
}

func (k *verifier) refuse(reason Reason, err error) error {
	k.failure = &Error{Reason: reason, Got: k.shown.Fingerprint, Err: err}
	return err
}

// certificate is tls.Config.GetClientCertificate; none is an empty one.
func (k *verifier) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if k.request.cert == nil {
		return new(tls.Certificate), nil
	}
	return k.request.cert, nil
}

// Get is tls.ClientSessionCache.Get. The key crypto/tls makes up from name and
// address is not used: sessions belong to keys.
func (k *verifier) Get(string) (*tls.ClientSessionState, bool) {
	var ok bool
	k.offered, ok = k.client.sessions.get(k.request.target.Fingerprint, k.request.epoch)
	return k.offered.state, ok
}

// Put is tls.ClientSessionCache.Put. crypto/tls calls it after the handshake,
// so the key is proven, except to drop a session that has expired.
func (k *verifier) Put(_ string, state *tls.ClientSessionState) {
	want := k.request.target.Fingerprint
	if state == nil {
		k.client.sessions.drop(want)
		return
	}
	epoch := k.request.epoch
	if k.resumed {
		epoch = max(epoch, k.offered.epoch)
	} else if k.offered.state != nil {
		k.client.sessions.drop(want) // it was declined: the other end has forgotten it
	}
	k.client.sessions.put(k.shown.Fingerprint, session{state: state, epoch: epoch, id: k.shown.ID})
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
	case isConnError(err):
		return &Error{Reason: ReasonUnreachable, Err: fmt.Errorf("accepted the connection but did not complete TLS: %w", plain(err))}
	default:
		return &Error{Reason: ReasonNotTLS, Err: fmt.Errorf("does not speak TLS 1.3: %w", err)}
	}
}

// isConnError reports whether err is about the connection and not about what came
// through it.
func isConnError(err error) bool {
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
