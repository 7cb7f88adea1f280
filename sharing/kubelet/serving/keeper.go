package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
)

const (
	// patience is how long the signer may take before a certificate signed by itself
	// is used meanwhile.
	patience = 20 * time.Second
	// The pause before another request after one that failed.
	firstPause = time.Minute
	lastPause  = 6 * time.Hour
	// glance is how often the clock is looked at while a certificate is good: clocks
	// of edge boxes are set while they run.
	glance = time.Hour
)

// Subject is what a certificate is for.
type Subject struct {
	// Name is the node's, without "system:node:".
	Name string
	// Address is where callers connect to.
	Address netip.Addr
}

// State is how the certificate stands.
type State struct {
	Signed   bool      // by the cluster's signer; else by itself
	NotAfter time.Time // the zero time while there is none
	// Problem is why it is not signed, in a sentence; empty when it is.
	Problem string
}

// Keeper keeps a certificate. Its methods may be called from any goroutine.
type Keeper struct {
	file    string
	logger  *slog.Logger
	changed func()

	mu      sync.Mutex
	current *tls.Certificate // nil: none
	state   State
	renewAt time.Time // of a signed one
}

// NewKeeper returns a keeper that has no certificate yet. It keeps its file in dir
// and calls changed, unless that is nil, when what Certificate or State return is
// another.
func NewKeeper(dir string, logger *slog.Logger, changed func()) *Keeper {
	if changed == nil {
		changed = func() {}
	}
	return &Keeper{file: filepath.Join(dir, "kubelet.pem"), logger: logger, changed: changed}
}

// Certificate returns the certificate to serve with, and an error while there is
// none. Its leaf is set.
func (k *Keeper) Certificate() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil, errNone
	}
	return k.current, nil
}

// State returns how the certificate stands.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run keeps a certificate for a subject until ctx ends. It is to run once at a
// time. What it had for another address is given up at once.
func (k *Keeper) Run(ctx context.Context, client *kube.Client, subject Subject) {
	k.restore(subject)
	pause := firstPause
	for ctx.Err() == nil {
		if wait := k.good(); wait > 0 {
			_ = work.Sleep(ctx, min(wait, glance))
			continue
		}
		certificate, err := k.request(ctx, client, subject)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			k.use(certificate, true, "")
			k.logger.Info("The kubelet API has a certificate of the cluster.", "until", certificate.Leaf.NotAfter)
			if err := write(k.file, certificate); err != nil {
				k.logger.Warn("The certificate of the kubelet API cannot be stored.", "error", err)
			}
			pause = firstPause
			continue
		}
		k.logger.Warn("No certificate for the kubelet API was signed.", "error", err, "again_in", pause)
		k.makeDo(subject, err.Error())
		_ = work.Sleep(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// good returns how long the current certificate needs no other, 0 when it does.
func (k *Keeper) good() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || !k.state.Signed {
		return 0
	}
	return time.Until(k.renewAt)
}

// restore takes up what is there already: in memory from the last run, or in the
// file from the last start.
func (k *Keeper) restore(subject Subject) {
	if c, err := k.Certificate(); err == nil && fits(c.Leaf, subject) == nil {
		return
	}
	k.mu.Lock()
	had := k.current != nil
	k.current, k.state = nil, State{}
	k.mu.Unlock()
	certificate, err := read(k.file)
	switch {
	case err != nil:
		k.logger.Warn("The stored certificate of the kubelet API cannot be used; a new one is requested.", "error", err)
	case certificate != nil && fits(certificate.Leaf, subject) == nil:
		k.use(certificate, true, "")
		return
	}
	if had {
		k.changed()
	}
}

// makeDo makes a certificate signed by itself unless there is one that works.
func (k *Keeper) makeDo(subject Subject, problem string) {
	k.mu.Lock()
	current, signed := k.current, k.state.Signed
	k.mu.Unlock()
	switch {
	case current != nil && fits(current.Leaf, subject) == nil && signed:
		return // it is to be renewed, but has not ended yet
	case current != nil && fits(current.Leaf, subject) == nil:
		k.use(current, false, problem)
		return
	}
	certificate, err := selfSigned(subject)
	if err != nil { // the system has no randomness
		k.logger.Error("No certificate for the kubelet API can be requested.", "error", err)
		return
	}
	k.use(certificate, false, problem)
}

func (k *Keeper) use(certificate *tls.Certificate, signed bool, problem string) {
	state := State{Signed: signed, NotAfter: certificate.Leaf.NotAfter, Problem: problem}
	k.mu.Lock()
	news := k.current != certificate || k.state != state
	k.current, k.state = certificate, state
	k.renewAt = renewal(certificate.Leaf)
	k.mu.Unlock()
	if news {
		k.changed()
	}
}

// unserved returns how long we can wait for the signer: until the certificate that
// there is ends, or for as long as patience lasts.
func (k *Keeper) unserved() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil && k.state.Signed {
		return max(time.Until(k.state.NotAfter), 0)
	}
	return patience
}

// renewal is when a certificate is to be renewed: after 70 to 90 % of its life, so
// that many of them do not all do it at once.
func renewal(leaf *x509.Certificate) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*rand.Float64())))
}

// fits returns why a certificate is not for a subject now, nil when it is.
func fits(leaf *x509.Certificate, subject Subject) error {
	now := time.Now()
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("it is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("it expired at %s", leaf.NotAfter.Format(time.RFC3339))
	case leaf.Subject.CommonName != commonName(subject):
		return fmt.Errorf("it is for %s", leaf.Subject.CommonName)
	}
	return leaf.VerifyHostname(subject.Address.String())
}
