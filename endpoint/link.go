package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
)

// LinkConfig says where a Link leads.
type LinkConfig struct {
	// Target returns the peer as far as it is known now; false while nothing is. Its
	// Fingerprint must be set. It must be quick and safe for concurrent use.
	Target func() (Target, bool)
	// Logger is told at debug level when a tunnel begins and ends; nil: nothing is.
	Logger *slog.Logger
}

// Link is the way to one peer's API server, through the gateway at its endpoint.
// Requests share one connection, the tunnel, which is made when it is needed and
// made anew when it is found dead, which takes some seconds. Its methods may be
// called from any goroutine. Errors name the peer.
type Link struct {
	client *Client
	cfg    LinkConfig
}

// NewLink returns a Link, which belongs to whoever called and is to be closed. It
// starts nothing.
func (c *Client) NewLink(cfg LinkConfig) *Link { return &Link{client: c, cfg: cfg} }

var errNoLink = errors.New("there is no way to the peer")

// RoundTrip is http.RoundTripper. Path and query of the request's URL are those of
// the API server; its scheme, host and credentials are not looked at, and of its
// header only Accept and Content-Type are sent. A body should have a length. A
// request that did not reach the peer is sent once more on a new tunnel, a GET also
// when it may have. How much of an answer's body to read is up to the caller.
func (l *Link) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNoLink }

// Upgrade sends a request whose answer is to be 101 Switching Protocols, on a
// connection of its own, and returns that. Nothing that came behind the answer's
// header is lost. Of the request's header only what the upgrade is about is sent.
// The connection has a CloseWrite, and belongs to the caller; Close of the Link
// ends it too. If the peer answers anything else, the connection is nil and the
// answer's body, of at most 64 KiB, is read already. ctx bounds the wait for the
// answer only.
func (l *Link) Upgrade(ctx context.Context, r *http.Request) (net.Conn, *http.Response, error) {
	return nil, nil, errNoLink
}

// Namespace returns the namespace at the peer that stands for our namespace
// origin; it is made if there is none. A *Refused says that the peer does not want
// that.
func (l *Link) Namespace(ctx context.Context, origin string) (string, error) { return "", errNoLink }

// Release tells the peer that its namespace for ours is not needed any more. A
// *Refused is as for Namespace.
func (l *Link) Release(ctx context.Context, origin string) error { return errNoLink }

// Moved says that the target may be another. If it is, the next request makes a
// new tunnel; what runs on the old one is left alone unless its key is none of the
// target's.
func (l *Link) Moved() {}

// Close ends everything under way and returns when it has. Requests fail from then
// on.
func (l *Link) Close() {}
