package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/control"
)

const (
	dialTimeout = 2 * time.Second
	callTimeout = 15 * time.Second
	// maxAnswer bounds what the client takes from the socket: the 5,000
	// neighbours of the default configuration are some 5 MB.
	maxAnswer = 256 << 20
	// maxError bounds an answer that is an error.
	maxError = 64 << 10
)

// Client talks to a running agent. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// New returns a client for the socket at path. Nothing is opened before
// the first call.
func New(path string) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
		DisableCompression: true,
		MaxIdleConns:       1,
		IdleConnTimeout:    callTimeout,
	}}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the state of the agent.
func (c *Client) Status(ctx context.Context) (control.Status, error) {
	return call[control.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Peers returns the peers that are present, and with all also those that are only
// remembered.
func (c *Client) Peers(ctx context.Context, all bool) ([]control.Peer, error) {
	path := "/v1/peers"
	if all {
		path += "?all=1"
	}
	return call[[]control.Peer](ctx, c, http.MethodGet, path, nil)
}

// Peer returns the peer that ref names, as Resolve understands it.
func (c *Client) Peer(ctx context.Context, ref string) (control.Peer, error) {
	return call[control.Peer](ctx, c, http.MethodGet, "/v1/peers/"+url.PathEscape(ref), nil)
}

// SetAlias names the peer that ref names; "" removes its alias.
func (c *Client) SetAlias(ctx context.Context, ref, alias string) (control.Peer, error) {
	return call[control.Peer](ctx, c, http.MethodPut, "/v1/peers/"+url.PathEscape(ref)+"/alias", control.Alias{Alias: alias})
}

// History returns the history, oldest first: of the peer that ref names, or of
// all when ref is ""; since a time, or from the beginning when it is zero; the
// newest limit entries, or all when it is 0.
func (c *Client) History(ctx context.Context, ref string, since time.Time, limit int) ([]control.Event, error) {
	q := url.Values{}
	if ref != "" {
		q.Set("peer", ref)
	}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return call[[]control.Event](ctx, c, http.MethodGet, "/v1/history?"+q.Encode(), nil)
}

// Config returns the configuration the agent runs with.
func (c *Client) Config(ctx context.Context) (control.Config, error) {
	return call[control.Config](ctx, c, http.MethodGet, "/v1/config", nil)
}

// LogLevel returns the level the agent logs at.
func (c *Client) LogLevel(ctx context.Context) (string, error) {
	out, err := call[control.LogLevel](ctx, c, http.MethodGet, "/v1/log/level", nil)
	return out.Level, err
}

// SetLogLevel changes the level the agent logs at, until it is restarted or
// reloads its configuration.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	return discard(ctx, c, http.MethodPut, "/v1/log/level", control.LogLevel{Level: level})
}

// Watch calls each for every line of the watch stream, until ctx ends (nil), each
// fails (its error), or the agent ends the stream (an error that says why).
func (c *Client) Watch(ctx context.Context, each func(control.WatchEvent) error) error {
	return c.watch(ctx, "/v1/watch", each)
}

// Follow is Watch for the one peer that ref names: its state at once, and again whenever
// it changes.
func (c *Client) Follow(ctx context.Context, ref string, each func(control.WatchEvent) error) error {
	return c.watch(ctx, "/v1/watch?peer="+url.QueryEscape(ref), each)
}

func (c *Client) watch(ctx context.Context, path string, each func(control.WatchEvent) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return orEnded(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	dec := json.NewDecoder(resp.Body)
	for {
		var ev control.WatchEvent
		if err := dec.Decode(&ev); err != nil {
			return orEnded(ctx, &control.Error{Message: fmt.Sprintf("the watch ended: %s", broken(err)), Cause: err, Advice: "liqo-agent status"})
		}
		if ev.Event == control.WatchError {
			return &control.Error{Message: "the watch ended: " + ev.Error, Advice: "liqo-agent peers watch"}
		}
		if err := each(ev); err != nil {
			return err
		}
	}
}

func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func broken(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the agent closed the connection"
	}
	return err.Error()
}

// call sends a request, and returns the answer.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return out, c.unread(path, err)
	}
	return out, nil
}

// discard sends a request, and ignores the body of the answer.
func discard(ctx context.Context, c *Client, method, path string, body any) error {
	_, err := call[struct{}](ctx, c, method, path, body)
	return err
}

// send sends a request and returns the answer if it is a success, else the error of the
// agent or the system.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://liqo-agent"+path, content)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	var failed control.ErrorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxError)).Decode(&failed); err != nil || failed.Error == "" {
		return nil, fmt.Errorf("the agent answered %s to %s %s", resp.Status, method, path)
	}
	return nil, failed.Err()
}

// unread says why the answer to a path could not be read.
func (c *Client) unread(path string, err error) error {
	if errors.Is(err, context.Canceled) {
		return c.explain(err)
	}
	return fmt.Errorf("the agent's answer to %s: %w", path, err)
}

// explain converts an error of the connection to one with advice.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOTDIR):
		return &control.Error{Kind: control.ErrNotRunning, Cause: err, Message: fmt.Sprintf("the agent is not running (nothing answers on %s)", c.path),
			Advice: control.RunAgent}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		group := socketGroup(c.path)
		advice := "use sudo"
		if group != "" && group != "root" {
			advice = fmt.Sprintf("sudo usermod -aG %s $USER, then log in again; or use sudo", group)
		}
		return &control.Error{Kind: control.ErrPermission, Cause: err, Message: fmt.Sprintf("no permission to use %s", c.path), Advice: advice}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.EAGAIN):
		return &control.Error{Cause: err, Message: fmt.Sprintf("the agent does not answer on %s in time", c.path),
			Advice: "check its log, for example: journalctl -u liqo-agent"}
	case errors.Is(err, context.Canceled):
		return &control.Error{Cause: err, Message: "interrupted before the agent answered"}
	}
	return fmt.Errorf("the agent's socket %s: %w", c.path, err)
}

// socketGroup returns the name of the group a socket belongs to, or "".
func socketGroup(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	g, err := user.LookupGroupId(strconv.FormatUint(uint64(st.Gid), 10))
	if err != nil {
		return ""
	}
	return g.Name
}
