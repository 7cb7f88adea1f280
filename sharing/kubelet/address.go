package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"

	"liqo.io/agent/kube/work"
)

// errNoAddress: the automatic choice does not work.
var errNoAddress = errors.New("the agent cannot listen at the address from which it reaches the API server; set sharing.kubelet_listen")

// route knows from which address of ours the local API server was reached last:
// the address at which it can reach us. Connections tell, so nothing has to be
// sent or looked up for it, and a change is seen when it matters.
type route struct {
	news chan struct{} // receives when there is another address

	mu   sync.Mutex
	addr netip.Addr
}

// observe returns a copy of a client's configuration whose connections tell a
// route their addresses.
func observe(config *rest.Config) (*rest.Config, *route) {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	r := &route{news: make(chan struct{}, 1)}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			r.note(conn.LocalAddr())
		}
		return conn, err
	}
	return config, r
}

func (r *route) note(local net.Addr) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if addr.IsLoopback() && addr.Is4() {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if addr == r.addr {
		return
	}
	r.addr = addr
	work.Wake(r.news)
}

// last returns the address, the zero one before the first connection.
func (r *route) last() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr
}

// spot is where to listen, and what to call it.
type spot struct {
	listen string     // host and port
	addr   netip.Addr // to be told
}

// choose says where to listen: where the configuration says, and else at the
// address that the API server is reached from. port is the one that was used last.
func choose(configured string, from netip.Addr, port uint16) (spot, error) {
	host := ""
	if configured != "" {
		var text string
		var err error
		if host, text, err = net.SplitHostPort(configured); err != nil {
			return spot{}, fmt.Errorf("sharing.kubelet_listen: %w", err)
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return spot{}, fmt.Errorf("sharing.kubelet_listen: %q is not a port", text)
		}
		if n != 0 {
			port = uint16(n)
		}
		if addr, err := netip.ParseAddr(host); err == nil && !addr.IsUnspecified() {
			return spot{listen: netip.AddrPortFrom(addr, port).String(), addr: addr}, nil
		} else if err != nil && host != "" {
			return spot{}, fmt.Errorf("sharing.kubelet_listen: %q is not an IP address", host)
		}
	}
	if !from.IsValid() || from.IsUnspecified() || from.IsMulticast() || from.Zone() != "" {
		return spot{}, errNoAddress
	}
	if configured == "" {
		host = from.String()
	}
	return spot{listen: net.JoinHostPort(host, strconv.Itoa(int(port))), addr: from}, nil
}
