//go:build linux

package crowd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"liqo.io/agent/peer"
)

// Fingerprint is the key that the box's endpoint holds; zero without one.
func (b *Box) Fingerprint() peer.Fingerprint {
	if b.cluster == nil {
		return peer.Fingerprint{}
	}
	return b.cluster.Fingerprint()
}

// serve serves GET /ids of every box at its own address until ctx ends.
func (c *Crowd) serve(ctx context.Context) error {
	boxes := make(map[netip.Addr]*Box, len(c.Boxes))
	for _, b := range c.Boxes {
		boxes[b.Addr] = b
	}
	at := func(a net.Addr) (*Box, error) {
		local, err := netip.ParseAddrPort(a.String())
		if err != nil {
			return nil, err
		}
		if b := boxes[local.Addr().Unmap()]; b != nil {
			return b, nil
		}
		return nil, fmt.Errorf("no box has %s", local)
	}
	var l net.Listener
	if err := c.host.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", c.opts.Port))
		return err
	}); err != nil {
		return err
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := at(r.Context().Value(http.LocalAddrContextKey).(net.Addr))
			if err != nil || r.URL.Path != "/ids" {
				http.NotFound(w, r)
				return
			}
			// A client that has gone does not matter to a simulated box.
			_ = json.NewEncoder(w).Encode(peer.Identity{ClusterID: b.ID, ClusterName: b.Name, GuestNamespace: "liqo"})
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				b, err := at(h.Conn.LocalAddr())
				if err != nil {
					return nil, err
				}
				return b.issuer.GetCertificate(h)
			},
		},
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
