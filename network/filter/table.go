package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Table is our tables in the network namespace that it was opened in.
type Table struct {
	mu        sync.Mutex
	conn      *nftables.Conn // nil after an error, until the next use
	socket    *netlink.Conn  // the socket of conn
	conntrack *tracking
	sockets   sync.Map // netlink addresses that conn had: what they wrote is our own

	unbound bool // the kernel does not count connections

	tunneled       bool      // the kernel knows of a tunnel
	renewals, told int       // of it, and of them those that the kernel knows
	renewed        time.Time // the last one

	current [2]*ruleset // what the kernel has; nil: not known, write all
	// blocks are all blocks of peers since connection tracking was last cleaned up.
	blocks map[netip.Prefix]struct{}
	dirty  bool // it has to be cleaned up
	// narrowed are the addresses for which it has to be, if it is not dirty.
	narrowed map[netip.Addr]struct{}
}

// patience limits how long the kernel may take to answer.
const patience = 30 * time.Second

// Open prepares to change the tables, without a change. The first Set writes all of
// them, whatever there is.
func Open() (*Table, error) {
	tracking, err := newTracking()
	if err != nil {
		return nil, err
	}
	t := &Table{conntrack: tracking, blocks: make(map[netip.Prefix]struct{}), dirty: true, narrowed: make(map[netip.Addr]struct{})}
	if err := t.dial(); err != nil {
		tracking.close()
		return nil, err
	}
	t.unbound = !counts()
	return t, nil
}

// counts reports whether the kernel counts connections.
func counts() bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	b := &batch{conn: conn, table: &nftables.Table{Name: tableName + "-probe", Family: nftables.TableFamilyIPv4}}
	b.renew()
	chain := conn.AddChain(&nftables.Chain{Name: "probe", Table: b.table})
	r := new(ruleset)
	for name, of := range map[string]struct {
		kind      kind
		condition []expr.Any
	}{"rates": {limited, faster(1, 1)}, "flows": {counted, moreThan(1)}} {
		b.note(conn.AddSet(b.handle(name, &set{kind: of.kind}, false), nil))
		conn.AddRule(&nftables.Rule{Table: b.table, Chain: chain, Exprs: r.perSource(name, of.kind, of.condition)})
	}
	conn.AddRule(&nftables.Rule{Table: b.table, Chain: chain, Exprs: moreThan(1)})
	conn.DelTable(b.table)
	return b.err == nil && conn.Flush() == nil
}

// Bounds reports whether the kernel can bound the connections of peers.
func (t *Table) Bounds() bool { return !t.unbound }

// Refused returns how many packets of each peer, by name, would have begun one connection too many, since its rules were
// written, in this network namespace.
func Refused() (map[string]uint64, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	out := make(map[string]uint64)
	for _, six := range []bool{false, true} {
		objects, err := conn.GetNamedObjects(tableOf(six))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("read the counters in nftables table %s: %w", title(six), err)
		}
		for _, o := range objects {
			named, ok := o.(*nftables.NamedObj)
			if !ok {
				continue
			}
			if counter, ok := named.Obj.(*expr.Counter); ok {
				if name, ok := strings.CutPrefix(named.Name, refused); ok {
					out[name] += counter.Packets
				}
			}
		}
	}
	return out, nil
}

// Close releases the sockets. The tables stay.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conntrack.close()
	return t.hangUp()
}

// Set makes the tables be as desired, in one transaction: it fails as a whole. It
// sends nothing if nothing changed. If Watch saw that somebody else changed them, it
// writes all of them. Then it deletes the tracked connections that are not granted
// any more; if that fails, the next Set tries again.
func (t *Table) Set(d Desired) error {
	if err := d.check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unbound {
		d.Connections = 0
	}
	if d.Tunnel != "" {
		age := time.Since(t.renewed)
		if age >= tunnelRenew {
			t.renewals++
		}
		if age >= tunnelLife && t.tunneled { // the kernel may have forgotten it
			t.current = [2]*ruleset{}
		}
		d.renewal = t.renewals
	}
	wanted := rulesets(&d)
	if err := t.dial(); err != nil {
		return err
	}
	if t.unknown() {
		if err := t.adoptBlocks(); err != nil {
			return err
		}
	}
	for _, p := range d.Peers {
		for _, theirs := range p.Theirs {
			t.blocks[theirs] = struct{}{}
		}
	}
	size := 0
	for i, after := range wanted {
		b := newBatch(t.conn, after.six)
		before := t.current[i]
		if before == nil {
			before = &ruleset{six: after.six}
			b.renew()
			t.dirty = true
		}
		b.change(before, after)
		if b.err != nil {
			return t.failed(b.err)
		}
		size += b.size
		if narrower, at := narrows(before, after); b.size > 0 && narrower {
			t.dirty = t.dirty || at == nil
			for _, a := range at {
				t.narrowed[a] = struct{}{}
			}
		}
	}
	t.dirty = t.dirty || len(t.narrowed) > fewAddresses
	if size > 0 {
		// What is seen of others' changes from here on, may come after ours.
		t.current = wanted
		now := time.Now()
		if err := t.flush(); err != nil {
			return err
		}
		if t.tunneled = d.Tunnel != ""; t.tunneled && d.renewal != t.told {
			t.told, t.renewed = d.renewal, now
		}
	}
	if !t.dirty && len(t.narrowed) == 0 {
		return nil
	}
	if err := t.cutOff(newJudge(&d)); err != nil {
		return err
	}
	t.dirty = false
	clear(t.narrowed)
	clear(t.blocks)
	for _, p := range d.Peers {
		for _, theirs := range p.Theirs {
			t.blocks[theirs] = struct{}{}
		}
	}
	return nil
}

// Remove deletes our tables, whoever made them, and the tracked connections of their blocks.
func (t *Table) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.dial(); err != nil {
		return err
	}
	if err := t.adoptBlocks(); err != nil {
		return err
	}
	for _, six := range []bool{false, true} {
		newBatch(t.conn, six).remove()
	}
	t.current = [2]*ruleset{}
	if err := t.flush(); err != nil {
		return err
	}
	t.dirty = true
	if err := t.cutOff(newJudge(&Desired{})); err != nil {
		return err
	}
	clear(t.blocks)
	return nil
}

// Leftovers returns what there is of ours in this network namespace, for people to read.
func Leftovers() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	var found []string
	for _, six := range []bool{false, true} {
		there, err := exists(conn, tableOf(six))
		if err != nil {
			return nil, err
		}
		if there {
			found = append(found, "nftables table "+title(six))
		}
	}
	return found, nil
}

// Thirds returns what there is of Peer.Thirds in the tables, whoever wrote them, by the names of peers.
func (t *Table) Thirds() (map[string][]Third, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.dial(); err != nil {
		return nil, err
	}
	out := make(map[string][]Third)
	for _, six := range []bool{false, true} {
		there, err := exists(t.conn, tableOf(six))
		if err != nil {
			return nil, t.failed(err)
		}
		if !there {
			continue
		}
		sets, err := t.conn.GetSets(tableOf(six))
		if err != nil {
			return nil, t.failed(fmt.Errorf("list the sets in nftables table %s: %w", title(six), err))
		}
		for _, s := range sets {
			peer, ours := strings.CutPrefix(s.Name, snat)
			peer, of := strings.CutSuffix(peer, thirds)
			if !ours || !of {
				continue
			}
			elements, err := t.conn.GetSetElements(s)
			if err != nil {
				return nil, t.failed(fmt.Errorf("read %s in nftables table %s: %w", s.Name, title(six), err))
			}
			for _, e := range elements {
				here, ok := netip.AddrFromSlice(e.Key)
				if there, valid := netip.AddrFromSlice(e.Val); ok && valid {
					out[peer] = append(out[peer], Third{Here: here, There: there})
				}
			}
		}
	}
	return out, nil
}

func title(six bool) string {
	if six {
		return "ip6 " + tableName
	}
	return "ip " + tableName
}

func exists(conn *nftables.Conn, table *nftables.Table) (bool, error) {
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == table.Name {
			return true, nil
		}
	}
	return false, nil
}

func (t *Table) unknown() bool { return t.current[0] == nil || t.current[1] == nil }

// adoptBlocks remembers the blocks of the tables that an earlier process left.
func (t *Table) adoptBlocks() error {
	for _, six := range []bool{false, true} {
		table := tableOf(six)
		there, err := exists(t.conn, table)
		if err != nil {
			return t.failed(err)
		}
		if !there {
			continue
		}
		elements, err := t.conn.GetSetElements(&nftables.Set{Table: table, Name: "theirs"})
		if errors.Is(err, unix.ENOENT) {
			continue // somebody deleted it
		}
		if err != nil {
			return t.failed(fmt.Errorf("read the blocks in nftables table %s: %w", title(six), err))
		}
		for _, p := range decodeBlocks(elements) {
			t.blocks[p] = struct{}{}
		}
	}
	return nil
}

// dial opens the connection to the kernel, unless it is open.
func (t *Table) dial() error {
	if t.conn != nil {
		return nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(t.prepare))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	t.conn = conn
	return nil
}

// room is the size in bytes of a socket's buffers: for a whole table in one message, and for
// as many answers or notifications.
const room = 32 << 20

// prepare makes a new socket ours.
func (t *Table) prepare(socket *netlink.Conn) error {
	if err := errors.Join(socket.SetReadBuffer(room), socket.SetWriteBuffer(room)); err != nil {
		return fmt.Errorf("set the buffers of a netlink socket: %w", err)
	}
	address, err := localAddress(socket)
	if err != nil {
		return err
	}
	t.socket = socket
	t.sockets.Store(address, true)
	return nil
}

func localAddress(socket *netlink.Conn) (uint32, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("read the address of a netlink socket: %w", err)
	}
	var name unix.Sockaddr
	var nameErr error
	err = raw.Control(func(fd uintptr) { name, nameErr = unix.Getsockname(int(fd)) })
	if err := errors.Join(err, nameErr); err != nil {
		return 0, fmt.Errorf("read the address of a netlink socket: %w", err)
	}
	own, ok := name.(*unix.SockaddrNetlink)
	if !ok {
		return 0, errors.New("read the address of a netlink socket: it is of another family")
	}
	return own.Pid, nil
}

// flush sends what was collected.
func (t *Table) flush() error {
	if err := t.socket.SetDeadline(time.Now().Add(patience)); err != nil {
		return t.failed(err)
	}
	if err := t.conn.Flush(); err != nil {
		return t.failed(fmt.Errorf("change the nftables tables %s and %s: %w", title(false), title(true), err))
	}
	return nil
}

// failed gives the connection up, which may still hold requests or answers, and forgets
// what the kernel has.
func (t *Table) failed(err error) error {
	t.current = [2]*ruleset{}
	return errors.Join(err, t.hangUp())
}

func (t *Table) hangUp() error {
	if t.conn == nil {
		return nil
	}
	err := t.conn.CloseLasting()
	t.conn, t.socket = nil, nil
	return err
}
