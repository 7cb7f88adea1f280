package client

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"sync"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// epoch tells apart what this cluster showed of itself on a connection: 0 is
// nothing, and it goes up whenever what is to be shown changes.
type epoch uint64

// presented is what this cluster shows of itself to servers. Its methods may be called from any
// goroutine.
type presented struct {
	issuer *trust.Issuer    // nil: nothing is shown
	key    peer.Fingerprint // without an issuer

	mu    sync.Mutex
	shown *tls.Certificate
	sum   [sha256.Size]byte
	epoch epoch
}

// fingerprint returns our own key, zero if there is none.
func (o *presented) fingerprint() peer.Fingerprint {
	if o.issuer == nil {
		return o.key
	}
	return o.issuer.Fingerprint()
}

// certificate returns what to show now, nil for nothing, and its epoch. A new
// leaf of the same key for the same cluster ID begins no new one: connections and
// sessions outlive it. A new key, ID, succession or fleet certificate does, so
// that peers see it at the next call and not when some old session ends.
func (o *presented) certificate() (*tls.Certificate, epoch, error) {
	if o.issuer == nil {
		return nil, 1, nil
	}
	cert, err := o.issuer.GetClientCertificate(nil)
	if err != nil {
		return nil, 0, fmt.Errorf("show who we are: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if cert == o.shown {
		return cert, o.epoch, nil
	}
	hash := sha256.New()
	if cert.Leaf != nil {
		for _, uri := range cert.Leaf.URIs {
			fmt.Fprintln(hash, uri)
		}
	}
	for _, der := range cert.Certificate[1:] {
		hash.Write(der)
	}
	if sum := [sha256.Size]byte(hash.Sum(nil)); o.epoch == 0 || sum != o.sum {
		o.epoch++
		o.sum = sum
	}
	o.shown = cert
	return cert, o.epoch, nil
}
