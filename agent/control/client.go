package control

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
)

const (
	dialTimeout = 2 * time.Second
	callTimeout = 15 * time.Second
	// maxAnswer bounds what the client takes from the socket: the 5,000
	// neighbours of the default configuration are some 5 MB.
	maxAnswer = 256 << 20
)

// RunAgent is the advice for ErrNotRunning. If the agent is a service, the command line
// advises to start that instead.
const RunAgent = "sudo liqo-agent run"

// Client talks to a running agent. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client for the socket at path. Nothing is opened before
// the first call.
func NewClient(path string) *Client {
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
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	return out, c.call(ctx, http.MethodGet, "/v1/status", nil, &out)
}

// Peers returns the peers that are present, and with all also those that are only
// remembered.
func (c *Client) Peers(ctx context.Context, all bool) ([]Peer, error) {
	path := "/v1/peers"
	if all {
		path += "?all=1"
	}
	var out []Peer
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}

// Peer returns the peer that ref names, as Resolve understands it.
func (c *Client) Peer(ctx context.Context, ref string) (Peer, error) {
	var out Peer
	return out, c.call(ctx, http.MethodGet, "/v1/peers/"+url.PathEscape(ref), nil, &out)
}

// SetAlias names the peer that ref names; "" removes its alias.
func (c *Client) SetAlias(ctx context.Context, ref, alias string) (Peer, error) {
	var out Peer
	return out, c.call(ctx, http.MethodPut, "/v1/peers/"+url.PathEscape(ref)+"/alias", Alias{Alias: alias}, &out)
}

// History returns the history, oldest first: of the peer that ref names, or of
// all when ref is ""; since a time, or from the beginning when it is zero; the
// newest limit entries, or all when it is 0.
func (c *Client) History(ctx context.Context, ref string, since time.Time, limit int) ([]Event, error) {
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
	var out []Event
	return out, c.call(ctx, http.MethodGet, "/v1/history?"+q.Encode(), nil, &out)
}

// Config returns the configuration the agent runs with.
func (c *Client) Config(ctx context.Context) (Config, error) {
	var out Config
	return out, c.call(ctx, http.MethodGet, "/v1/config", nil, &out)
}

// LogLevel returns the level the agent logs at.
func (c *Client) LogLevel(ctx context.Context) (string, error) {
	var out LogLevel
	return out.Level, c.call(ctx, http.MethodGet, "/v1/log/level", nil, &out)
}

// SetLogLevel changes the level the agent logs at, until it is restarted or
// reloads its configuration.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	return c.call(ctx, http.MethodPut, "/v1/log/level", LogLevel{Level: level}, nil)
}

// Watch calls each for every line of the watch stream, until ctx ends (nil), each
// fails (its error), or the agent ends the stream (an error that says why).
func (c *Client) Watch(ctx context.Context, each func(WatchEvent) error) error {
	return c.watch(ctx, "/v1/watch", each)
}

// Follow is Watch for the one peer that ref names: its state at once, and again whenever
// it changes.
func (c *Client) Follow(ctx context.Context, ref string, each func(WatchEvent) error) error {
	return c.watch(ctx, "/v1/watch?peer="+url.QueryEscape(ref), each)
}

func (c *Client) watch(ctx context.Context, path string, each func(WatchEvent) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return orEnded(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	dec := json.NewDecoder(resp.Body)
	for {
		var ev WatchEvent
		if err := dec.Decode(&ev); err != nil {
			return orEnded(ctx, &Error{Message: fmt.Sprintf("the watch ended: %s", broken(err)), Cause: err, Advice: "liqo-agent status"})
		}
		if ev.Event == WatchError {
			return &Error{Message: "the watch ended: " + ev.Error, Advice: "liqo-agent peers watch"}
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

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("the agent's answer to %s: %w", path, err)
	}
	return nil
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
	var failed errorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&failed); err != nil || failed.Error == "" {
		return nil, fmt.Errorf("the agent answered %s to %s %s", resp.Status, method, path)
	}
	return nil, failed.err()
}

// explain converts an error of the connection to one with advice.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOTDIR):
		return &Error{Kind: ErrNotRunning, Cause: err, Message: fmt.Sprintf("the agent is not running (nothing answers on %s)", c.path),
			Advice: RunAgent}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		group := socketGroup(c.path)
		advice := "use sudo"
		if group != "" && group != "root" {
			advice = fmt.Sprintf("sudo usermod -aG %s $USER, then log in again; or use sudo", group)
		}
		return &Error{Kind: ErrPermission, Cause: err, Message: fmt.Sprintf("no permission to use %s", c.path), Advice: advice}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.EAGAIN):
		return &Error{Cause: err, Message: fmt.Sprintf("the agent does not answer on %s in time", c.path),
			Advice: "check its log, for example: journalctl -u liqo-agent"}
	case errors.Is(err, context.Canceled):
		return err
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
