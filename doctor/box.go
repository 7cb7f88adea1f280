package doctor

import (
	"context"
	"errors"
	"sync"
	"time"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/rbac"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/state"
)

// Options say which box to look at.
type Options struct {
	Version string    // of this program
	Built   time.Time // when it was built at the earliest; zero = not known
	// Load reads the configuration as the agent would.
	Load func() (*config.Loaded, error)
	// Socket and StateDir are used where the configuration cannot be read, or when they
	// are set; "" = what it says.
	Socket, StateDir string
	Environ          []string // "NAME=value", as os.Environ returns it
	Root             bool     // this user may see everything
}

// agent is what is asked of the running agent. *client.Client is one.
type agent interface {
	Status(ctx context.Context) (control.Status, error)
	Peers(ctx context.Context, all bool) ([]control.Peer, error)
	Config(ctx context.Context) (control.Config, error)
	Reach(ctx context.Context) ([]control.Reach, error)
	Network(ctx context.Context) (control.Network, error)
}

// probes look at the machine.
type probes struct {
	links     func() ([]look.Link, error)
	usable    func(ifwatch.Filter) (ifwatch.Snapshot, error)
	port      func(ctx context.Context, port uint16) (look.Port, error)
	multicast func(ctx context.Context, links ifwatch.Snapshot, service, domain string, within time.Duration) (look.Heard, error)
	firewall  func(ctx context.Context) look.Firewall
	machine   func() (machine, error)
	names     func(ctx context.Context, server string) error
	callBack  func(ctx context.Context, key peer.Fingerprint, at string) (wire.Reached, error)
	synced    func() (bool, error)
	disk      func(dir string) (look.Disk, error)
	syncTimes func(ctx context.Context, dir string, times int) ([]time.Duration, error)
	modes     func(dir string, names ...string) ([]look.File, error)
	database  func(ctx context.Context, path string) (stored, error)
	process   func(ctx context.Context, socket string) (pid, uid int, err error)
	limits    func(pid int) (look.Limits, error)
	memory    func() (total, available uint64, err error)
	arpTable  func() (look.ARPTable, error)
	unit      func(ctx context.Context, name string) (look.Unit, error)
	readFile  func(path string) ([]byte, error)
	kube      func(ctx context.Context, setting string, running *control.Kubernetes, environ []string) (found, error)
	gaps      func(ctx context.Context, c *kube.Client, namespace string) ([]rbac.Gap, error)
	confined  func(ctx context.Context, c *kube.Client, namespace string) (confinement, error)
	now       func() time.Time
}

// Box is what is looked at. It may be used for one Run and the Bundle that belongs to
// it.
type Box struct {
	opts Options
	ask  probes

	agent     agent
	closing   func()
	socket    string
	stateDir  string
	loaded    *config.Loaded // the defaults when it could not be read
	loadError error

	// What several checks look at is looked at once.
	running lazy[running]
	heard   lazy[heard]
	reached lazy[[]control.Reach]
	api     lazy[found]
	fire    lazy[look.Firewall]
}

// NewBox returns the box that this program runs on. It reads the configuration and
// nothing else. Close it after use.
func NewBox(opts Options) *Box {
	b := &Box{opts: opts, ask: realProbes()}
	loaded, err := opts.Load()
	b.loaded, b.loadError = loaded, err
	if err != nil {
		b.loaded = &config.Loaded{Config: config.Default(), Sources: map[string]string{}}
	}
	b.socket, b.stateDir = opts.Socket, opts.StateDir
	if b.socket == "" {
		b.socket = b.loaded.Config.State.Socket
	}
	if b.stateDir == "" {
		b.stateDir = b.loaded.Config.State.Dir
	}
	client := client.New(b.socket)
	b.agent, b.closing = client, client.Close
	return b
}

// Close drops connections.
func (b *Box) Close() {
	b.closing()
	if api, ok := b.api.had(); ok && api.value.client != nil {
		api.value.client.Close()
	}
}

func (b *Box) now() time.Time { return b.ask.now() }

func (b *Box) config() config.Config { return b.loaded.Config }

// result is a value or why there is none.
type result[T any] struct {
	value T
	err   error
}

// lazy is a value that is found out once, by whoever needs it first.
type lazy[T any] struct {
	once sync.Once
	mu   sync.Mutex
	got  *result[T]
}

// get returns the value, which find finds out within a time of its own: other checks
// may wait for it longer than the one that came first.
func (l *lazy[T]) get(ctx context.Context, limit time.Duration, find func(context.Context) (T, error)) (T, error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		value, err := find(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got = &result[T]{value, err}
	})
	got, _ := l.had()
	return got.value, got.err
}

// had returns what was found out, if it was.
func (l *lazy[T]) had() (result[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got == nil {
		return result[T]{}, false
	}
	return *l.got, true
}

// running is what the agent says of itself.
type running struct {
	status control.Status
	peers  []control.Peer
}

// agentSays asks the running agent once. The error is control.ErrNotRunning when
// there is none, and control.ErrPermission when this user may not ask.
func (b *Box) agentSays(ctx context.Context) (running, error) {
	return b.running.get(ctx, usual, func(ctx context.Context) (running, error) {
		var out running
		var err error
		if out.status, err = b.agent.Status(ctx); err != nil {
			return out, err
		}
		out.peers, err = b.agent.Peers(ctx, true)
		return out, err
	})
}

// unasked says why the agent was not asked.
func unasked(err error) Finding {
	switch {
	case errors.Is(err, control.ErrNotRunning):
		return skipped("the agent is not running")
	case errors.Is(err, control.ErrPermission):
		return skipped("this user may not connect to the agent: use sudo, or join the group of its socket")
	}
	return skipped("cannot query the agent: %v", err)
}

// callsBack is what trusted peers found when they called us back.
func (b *Box) callsBack(ctx context.Context) ([]control.Reach, error) {
	return b.reached.get(ctx, asking-2*time.Second, b.agent.Reach)
}

// firewall reads the firewall's rules.
func (b *Box) firewall(ctx context.Context) look.Firewall {
	// It is no error that there is none, or none that may be read.
	out, _ := b.fire.get(ctx, usual, func(ctx context.Context) (look.Firewall, error) { return b.ask.firewall(ctx), nil })
	return out
}

// filter is the choice of interfaces.
func (b *Box) filter() ifwatch.Filter {
	d := b.config().Discovery
	return ifwatch.Filter{Include: d.Interfaces, Exclude: d.ExcludeInterfaces}
}

// stored is what the database says.
type stored struct {
	id peer.ClusterID
}

func realProbes() probes {
	return probes{
		links: look.Links, usable: ifwatch.Read, port: look.UDPPort, multicast: look.Multicast, firewall: look.ReadFirewall, machine: findMachine,
		names: names.Probe, callBack: callBack, synced: clock.Synchronised, disk: look.DiskOf, syncTimes: look.SyncTimes, modes: look.Modes,
		database: readDatabase, process: look.PeerPID, limits: look.LimitsOf, memory: look.Memory, arpTable: look.ReadARPTable,
		unit: look.UnitOf, readFile: readSmall, kube: findAPI, gaps: rbac.Gaps, confined: findConfinement, now: time.Now,
	}
}

// readDatabase opens the database for reading, as far as that says whether it is
// sound.
func readDatabase(ctx context.Context, path string) (stored, error) {
	s, err := state.OpenReadOnly(ctx, path)
	if err != nil {
		return stored{}, err
	}
	id, err := s.ClusterID(ctx)
	return stored{id: id}, errors.Join(err, s.Close())
}
