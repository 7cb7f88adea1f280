//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
)

// servicePort is that of all Services, by TCP.
const servicePort = 80

// directs starts kube-proxy on a box, or starts it again after it was killed. It may be told by an API server that is broken, so
// what fails is tried again with the next step.
func (c *chaos) directs(x *box) error {
	if p := c.proxies[x]; p != nil && !over(p) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	p, err := x.kube.StartKubeProxy(ctx, bed.ProxyNFTables)
	if err == nil {
		c.proxies[x] = p
	}
	return err
}

// accept answers each connection with the box, the address that was asked, and who asked, until the test ends.
func (p *packets) accept(i int) {
	var l net.Listener
	p.c.check(p.pods[i].Do(func() (err error) { l, err = net.Listen("tcp4", fmt.Sprintf(":%d", answerPort)); return err }))
	p.c.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed, or nobody is answered any more, which is noticed
			}
			_, _ = fmt.Fprintf(conn, "%d %s %s", i, conn.LocalAddr().(*net.TCPAddr).IP, conn.RemoteAddr().(*net.TCPAddr).IP)
			_ = conn.Close()
		}
	}()
}

// served checks that a pod at home of box x is answered by the Service whose pods are all at box y, by one of these.
func (p *packets) served(x, y int) error {
	name := "on-" + p.c.boxes[y].host.Name
	service, found, err := get[corev1.Service](p.c.boxes[x], "/api/v1/namespaces/shop/services/"+name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	src, asks := p.asker(x, x)
	block := p.sights[y].blocks[x]
	p.mu.Unlock()
	if !found || !asks {
		return fmt.Errorf("%s: there is no Service %s, or no pod that could ask it", p.c.boxes[x].host.Name, name)
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), servicePort)
	var conn net.Conn
	if err := p.pods[x].Do(func() (err error) {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(src, 0)), Timeout: 3 * time.Second}
		conn, err = d.DialContext(p.c.t.Context(), "tcp4", addr.String())
		return err
	}); err != nil {
		return fmt.Errorf("%s: %s asks by the Service %s: %w", p.c.boxes[x].host.Name, src, name, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second)) // of an open socket
	text, err := io.ReadAll(conn)
	var at int
	var asked, seen string
	if err == nil {
		_, err = fmt.Sscan(string(text), &at, &asked, &seen)
	}
	if err != nil {
		return fmt.Errorf("%s: the Service %s answers %q: %w", p.c.boxes[x].host.Name, name, text, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from, err := netip.ParseAddr(seen)
	if err == nil && at == y && block.Contains(from) && from.As4()[3] == src.As4()[3] {
		for _, pod := range p.sights[y].pods {
			if p.owner(y, &pod) == x && pod.Status.PodIP == asked && strings.HasPrefix(pod.Name, name) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s: %s asks by the Service %s; %s of %s answered, and saw %s", p.c.boxes[x].host.Name, src, name, asked, p.c.boxes[at].host.Name, seen)
}
