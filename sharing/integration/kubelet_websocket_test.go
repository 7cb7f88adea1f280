package integration

import (
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// testOldWebSocket: clients that speak the WebSocket protocols which API servers
// do not translate, so that they arrive at kubelets as they are.
func testOldWebSocket(t *testing.T, c *clusters) {
	config, err := rest.TLSConfigFor(c.consumer.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"http/1.1"}
	raw, err := c.consumer.Host.DialContext(t.Context(), "tcp", "127.0.0.1:6443")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	query := url.Values{"command": {"sh", "-c", "hostname"}, "stdout": {"true"}, "container": {"main"}}
	options, err := websocket.NewConfig("wss://127.0.0.1:6443/api/v1/namespaces/shop/pods/web/exec?"+query.Encode(), "https://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	options.Protocol = []string{"v4.channel.k8s.io"}
	conn, err := websocket.NewClient(options, net.Conn(tls.Client(raw, config)))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for {
		var frame []byte // the number of the stream, then its bytes
		if err := websocket.Message.Receive(conn, &frame); err != nil {
			break
		}
		if len(frame) > 0 && frame[0] == 1 {
			text.Write(frame[1:])
		}
	}
	if text.String() != "provider\n" {
		t.Errorf("hostname: %q", text.String())
	}
}
