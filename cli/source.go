package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// databaseName is the file in the state directory.
const databaseName = "agent.db"

// places is where a running agent is found, and what it leaves behind.
type places struct {
	socket   string
	stateDir string
}

const (
	configFlag   = "config"
	socketFlag   = "socket"
	stateDirFlag = "state-dir"
)

// placeFlags are the options of every command that asks the agent.
func placeFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: configFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent, to find its socket and database"},
		&urfave.StringFlag{Name: socketFlag, Usage: "`PATH` of the agent's socket"},
		&urfave.StringFlag{Name: stateDirFlag, Usage: "`DIR` with the agent's database"},
	}
}

// placeValues completes placeFlags.
var placeValues = map[string]func(context.Context) []candidate{
	configFlag: files, socketFlag: files, stateDirFlag: files,
}

// withPlaces adds choices of other options to placeValues.
func withPlaces(choices map[string][]string) map[string]func(context.Context) []candidate {
	out := maps.Clone(placeValues)
	for name, values := range choices {
		out[name] = func(context.Context) []candidate { return fixed(values...) }
	}
	return out
}

// fileValues completes options that name files.
func fileValues(names ...string) map[string]func(context.Context) []candidate {
	out := make(map[string]func(context.Context) []candidate, len(names))
	for _, name := range names {
		out[name] = files
	}
	return out
}

// places finds the agent as the agent's own configuration says, whose file is
// named or, when path is "", in the usual place. A file that cannot be used
// does not keep anybody from looking: the defaults are tried.
func (a *App) places(path string) (places, error) {
	loaded, err := config.Load(config.Options{Path: path, PathExplicit: path != "", Env: a.opts.Environ})
	if err != nil {
		def := config.Default()
		return places{def.State.Socket, def.State.Dir}, err
	}
	return places{loaded.Config.State.Socket, loaded.Config.State.Dir}, nil
}

// places is App.places with the options of this call on top.
func (c *call) places() places {
	path := c.String(configFlag)
	at, err := c.app.places(path)
	socket, dir := c.String(socketFlag), c.String(stateDirFlag)
	// A file that this user may not read is nothing to talk about, and
	// neither is one that does not matter because the options say it all.
	if err != nil && socket == "" && (path != "" || !errors.Is(err, fs.ErrPermission)) {
		c.note("%v; trying %s", err, at.socket)
	}
	if socket != "" {
		at.socket = socket
	}
	if dir != "" {
		at.stateDir = dir
	}
	return at
}

// note tells the user something that is not the command's output.
func (c *call) note(format string, args ...any) {
	// A note that cannot be written must not fail the command.
	_, _ = fmt.Fprintf(c.app.opts.Stderr, "%s: %s\n", Name, cleanLines(fmt.Sprintf(format, args...)))
}

func (c *call) client() *control.Client { return control.NewClient(c.places().socket) }

// source answers questions about peers: the running agent, or what it left in
// its database.
type source struct {
	client *control.Client
	store  *state.Store // nil while an agent runs
}

// open returns the running agent, or its database when none runs; the user is
// told which.
func (c *call) open() (*source, error) {
	at := c.places()
	client := control.NewClient(at.socket)
	_, err := client.LogLevel(c.Context.Context)
	if !errors.Is(err, control.ErrNotRunning) {
		return &source{client: client}, err
	}
	client.Close()
	path := filepath.Join(at.stateDir, databaseName)
	store, dbErr := state.OpenReadOnly(c.Context.Context, path)
	if dbErr != nil {
		return nil, unreadable(err, dbErr)
	}
	c.note("the agent is not running; this is what it remembered (%s)", path)
	return &source{store: store}, nil
}

// unreadable says that neither the agent nor its database can be asked.
func unreadable(notRunning, dbErr error) error {
	if errors.Is(dbErr, state.ErrNoDatabase) {
		return notRunning
	}
	out := &control.Error{Kind: control.ErrNotRunning, Cause: dbErr, Message: "the agent is not running, and its database cannot be read: " + dbErr.Error()}
	if errors.Is(dbErr, state.ErrNewerSchema) {
		return out // it says what to do; this program's agent could not start either
	}
	var advised interface{ Try() string }
	if errors.As(notRunning, &advised) {
		out.Advice = advised.Try()
	}
	return out
}

func (s *source) offline() bool { return s.store != nil }

func (s *source) close() {
	if s.store != nil {
		// It was only read: nothing can be lost.
		_ = s.store.Close()
		return
	}
	s.client.Close()
}

// peers returns everything known, in order.
func (s *source) peers(ctx context.Context) ([]control.Peer, error) {
	if s.store == nil {
		return s.client.Peers(ctx, true)
	}
	stored, err := s.store.Peers(ctx)
	if err != nil {
		return nil, err
	}
	rulings, err := s.store.Rulings(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]control.Peer, 0, len(stored))
	for _, p := range stored {
		q := control.NewPeer(p)
		decided(&q, rulings[p.ID])
		q.Remembered = true
		q.Phase, q.Reason = string(peer.PhaseLost), "not looked for: the agent is not running"
		out = append(out, q)
	}
	control.SortPeers(out)
	return out, nil
}

// decided adds what was decided about a peer.
func decided(p *control.Peer, r state.Ruling) {
	var pin *peer.Pin
	if !r.Pin.Fingerprint.IsZero() {
		pin = &r.Pin.Pin
	}
	p.Trust = control.NewTrust(pin, r.Distrust.By != "")
	if p.Trust.Mode == control.Untrusted {
		p.Trust.By, p.Trust.At = r.Distrust.By, r.Distrust.At
	}
	p.Preferences = control.Preferences{
		AutoConnect: control.Choice(r.Preferences.AutoConnect.String()), AutoAccept: control.Choice(r.Preferences.AutoAccept.String()),
		Blocked: r.Preferences.Blocked == state.Yes, BlockedHosts: r.Preferences.Hosts(), Note: r.Preferences.Note, URL: r.Preferences.URL,
	}
}

func (s *source) peer(ctx context.Context, ref string) (control.Peer, error) {
	if s.store == nil {
		return s.client.Peer(ctx, ref)
	}
	known, err := s.peers(ctx)
	if err != nil {
		return control.Peer{}, err
	}
	return control.Resolve(known, ref)
}

// history returns what happened to the peer that ref names, or to all of them
// when it is "".
func (s *source) history(ctx context.Context, ref string, since time.Time, limit int) ([]control.Event, error) {
	if s.store == nil {
		return s.client.History(ctx, ref, since, limit)
	}
	known, err := s.peers(ctx)
	if err != nil {
		return nil, err
	}
	q := state.HistoryQuery{Since: since, Limit: limit}
	if ref != "" {
		if q.ID, err = control.ResolveID(known, ref); err != nil {
			return nil, err
		}
	}
	entries, err := s.store.History(ctx, q)
	if err != nil {
		return nil, err
	}
	return control.NameEvents(entries, known), nil
}

// trimService shows "_liqo._tcp.local" for a service and its domain.
func trimService(service, domain string) string {
	return service + "." + strings.TrimSuffix(domain, ".")
}
