package peering

import (
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
)

const (
	// A peer that does not read what it asked for keeps that much of it here, in
	// bytes, and no more. The API server is near, so more would not be faster.
	upstreamWindow = 128 << 10
	// upstreamWindows is the same for all of them, as many as there can be at the
	// endpoint: those that are not read must not keep the others waiting.
	upstreamWindows = 1024 * upstreamWindow
)

// newUpstream is the way to the API server for requests that are not the agent's
// own. They do not tell link how the connection is, for a peer may send what the
// API server takes long to answer, and have connections of their own.
func newUpstream(config *rest.Config, link *link) (endpoint.Upstream, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // the gateway sets one per request
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{link: link, next: next} })
	base, _, err := rest.DefaultServerURL(config.Host, "", api.GroupVersion, true)
	if err != nil {
		return endpoint.Upstream{}, fmt.Errorf("address of the API server: %w", err)
	}
	up := endpoint.Upstream{Base: base}
	if up.Transport, err = upstreamTransport(config, true); err != nil {
		return endpoint.Upstream{}, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	// Connections that become something else begin as HTTP/1.1.
	if up.Upgrade, err = upstreamTransport(config, false); err != nil {
		return endpoint.Upstream{}, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return up, nil
}

// upstreamTransport is rest.TransportFor with windows of our own, which cannot be
// shared with others, and with or without HTTP/2.
func upstreamTransport(config *rest.Config, multiplexed bool) (http.RoundTripper, error) {
	if config.Transport != nil {
		return rest.HTTPWrappersForConfig(config, config.Transport)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: requestTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: upstreamWindows,
			MaxReceiveBufferPerStream:     upstreamWindow,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
	}
	transport.Protocols.SetHTTP1(true)
	transport.Protocols.SetHTTP2(multiplexed)
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	if config.Dial != nil {
		transport.DialContext = config.Dial
	}
	return rest.HTTPWrappersForConfig(config, transport)
}

// closeUpstream closes the connections of an Upstream that are not in use.
func closeUpstream(up endpoint.Upstream) {
	for _, t := range []http.RoundTripper{up.Transport, up.Upgrade} {
		if t != nil {
			utilnet.CloseIdleConnectionsFor(t)
		}
	}
}
