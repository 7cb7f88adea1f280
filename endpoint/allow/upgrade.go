package allow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"liqo.io/agent/peer/text"
)

const (
	spdy      = "SPDY/3.1"
	websocket = "websocket"
)

// The protocols that a caller may ask for within an upgraded connection.
var (
	spdyCommand    = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}
	spdyForward    = []string{"portforward.k8s.io"}
	socketCommand  = []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}
	socketForward  = []string{"SPDY/3.1+portforward.k8s.io"}
	upgradeAnswers = []string{"X-Stream-Protocol-Version", "Sec-Websocket-Accept", "Sec-Websocket-Protocol"}
)

// Upgrade is what a caller wants of a connection. Every part of it was checked.
type Upgrade struct {
	to        string   // spdy or websocket
	protocols []string // within it, the most wanted first
	key       string   // of a WebSocket
}

// ParseUpgrade reads what a request's header says about its upgrade.
func ParseUpgrade(h http.Header, call Call) (Upgrade, error) {
	single := func(name string) string {
		if all := h.Values(name); len(all) == 1 {
			return all[0]
		}
		return ""
	}
	if !strings.EqualFold(single("Connection"), "upgrade") {
		return Upgrade{}, errors.New(`its Connection is not "Upgrade"`)
	}
	forward := call.Within == "portforward"
	switch to := single("Upgrade"); {
	case strings.EqualFold(to, spdy):
		allowed := spdyCommand
		if forward {
			allowed = spdyForward
		}
		return wantProtocols(Upgrade{to: spdy}, h.Values("X-Stream-Protocol-Version"), allowed)
	case strings.EqualFold(to, websocket) && call.Method == http.MethodGet:
		key := single("Sec-Websocket-Key")
		if nonce, err := base64.StdEncoding.DecodeString(key); err != nil || len(nonce) != 16 {
			return Upgrade{}, errors.New("its Sec-WebSocket-Key is not one of RFC 6455")
		}
		if single("Sec-Websocket-Version") != "13" {
			return Upgrade{}, errors.New("its Sec-WebSocket-Version is not 13")
		}
		allowed := socketCommand
		if forward {
			allowed = socketForward
		}
		return wantProtocols(Upgrade{to: websocket, key: key}, h.Values("Sec-Websocket-Protocol"), allowed)
	}
	return Upgrade{}, errors.New("its Upgrade is neither " + spdy + " nor, with GET, " + websocket)
}

// wantProtocols completes u with those protocols of a header's values that are
// allowed.
func wantProtocols(u Upgrade, values, allowed []string) (Upgrade, error) {
	for _, p := range strings.Split(strings.Join(values, ","), ",") {
		if p = strings.TrimSpace(p); slices.Contains(allowed, p) && !slices.Contains(u.protocols, p) {
			u.protocols = append(u.protocols, p)
		}
	}
	if len(u.protocols) == 0 {
		return Upgrade{}, fmt.Errorf("it asks for none of the protocols %s", strings.Join(allowed, ", "))
	}
	return u, nil
}

// Header is what the API server is sent.
func (u Upgrade) Header() http.Header {
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {u.to}}
	if u.to == spdy {
		h["X-Stream-Protocol-Version"] = u.protocols
		return h
	}
	h["Sec-WebSocket-Version"], h["Sec-WebSocket-Key"] = []string{"13"}, []string{u.key}
	h["Sec-WebSocket-Protocol"] = []string{strings.Join(u.protocols, ", ")}
	return h
}

// Switched returns the answer to the caller for that of the API server, or an error
// when that is not what was asked for.
func (u Upgrade) Switched(resp *http.Response) (string, error) {
	if !strings.EqualFold(resp.Header.Get("Upgrade"), u.to) {
		return "", fmt.Errorf("an upgrade to %q", text.Sentence(resp.Header.Get("Upgrade")))
	}
	text := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + u.to + "\r\n"
	for _, name := range upgradeAnswers {
		value := resp.Header.Get(name)
		if value == "" {
			continue
		}
		if len(value) > 64 || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return "", errors.New("an upgrade with a header that makes no sense")
		}
		text += name + ": " + value + "\r\n"
	}
	return text + "\r\n", nil
}
