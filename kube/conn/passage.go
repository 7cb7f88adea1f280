package conn

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// dialTimeout bounds what a connection takes.
	dialTimeout = 10 * time.Second

	// Somebody who does not read what they asked for keeps that much of it here,
	// in bytes, and no more. The API server is near, so more would not be faster.
	passageWindow = 128 << 10
	// passageWindows is the same for all of them, as many as there can be
	// at the endpoint: those that are not read must not keep the others waiting.
	passageWindows = 1024 * passageWindow
)

// Passage is the way to the API server for requests that are not the agent's own, with
// the agent's credentials. They do not tell how the connection is, for somebody else may
// send what the API server takes long to answer, and have connections of their own.
type Passage struct {
	// Base is where paths begin, https://host:port, perhaps with a path.
	Base *url.URL
	// Transport is for requests that are answered, and Upgrade, which speaks HTTP/1.1
	// only, for those whose connection is to become something else.
	Transport, Upgrade http.RoundTripper
}

func (l *Link) passage(config *rest.Config) (Passage, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // whoever sends a request sets one
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &counted{next, l.now, &l.passed, &l.passedRequests}
	})
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{Version: "v1"}, true)
	if err != nil {
		return Passage{}, fmt.Errorf("address of the API server: %w", err)
	}
	p := Passage{Base: base}
	if p.Transport, err = passageTransport(config, true); err != nil {
		return Passage{}, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	// Connections that become something else begin as HTTP/1.1.
	if p.Upgrade, err = passageTransport(config, false); err != nil {
		return Passage{}, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return p, nil
}

// passageTransport is rest.TransportFor with windows of our own, which cannot be
// shared with others, and with or without HTTP/2.
func passageTransport(config *rest.Config, multiplexed bool) (http.RoundTripper, error) {
	if config.Transport != nil {
		return rest.HTTPWrappersForConfig(config, config.Transport)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		// The API server closes the connection of an upgrade that it refuses, without saying so in its answer.
		DisableKeepAlives: !multiplexed,
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: passageWindows,
			MaxReceiveBufferPerStream:     passageWindow,
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

// close closes the connections that are not in use.
func (p Passage) close() {
	utilnet.CloseIdleConnectionsFor(p.Transport)
	utilnet.CloseIdleConnectionsFor(p.Upgrade)
}
