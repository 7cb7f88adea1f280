package filter

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// chunk is how many elements of a set one message has: its attributes are limited to 64 KB.
const chunk = 300

// batch collects the changes of one table, to be applied all at once or not at all.
type batch struct {
	conn  *nftables.Conn
	table *nftables.Table
	size  int // changes so far
	err   error
}

func newBatch(conn *nftables.Conn, six bool) *batch {
	return &batch{conn: conn, table: tableOf(six)}
}

func tableOf(six bool) *nftables.Table {
	if six {
		return &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv6}
	}
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
}

// renew makes an empty table, whatever there was.
func (b *batch) renew() {
	b.remove()
	b.conn.AddTable(b.table)
}

// remove deletes the table. It need not exist.
func (b *batch) remove() {
	b.conn.AddTable(b.table)
	b.conn.DelTable(b.table)
	b.size += 2
}

// change makes a table that has the old rules have the new ones.
func (b *batch) change(before, after *ruleset) {
	six := after.six
	for _, name := range sortedKeys(after.sets) {
		if before.sets[name] == nil {
			b.note(b.conn.AddSet(b.handle(name, after.sets[name], six), nil))
		}
	}
	for _, name := range sortedKeys(after.counters) {
		if !before.counters[name] {
			b.conn.AddObject(b.counter(name))
			b.size++
		}
	}
	for _, name := range sortedKeys(after.chains) {
		if before.chains[name] == nil {
			b.addChain(name, after.chains[name])
		}
	}
	// An interval may take the place of another one: all that goes, goes first.
	for _, name := range sortedKeys(after.sets) {
		if old := before.sets[name]; old != nil {
			b.elements(b.conn.SetDeleteElements, name, old, minus(old, after.sets[name]), six)
		}
	}
	for _, name := range sortedKeys(after.sets) {
		b.elements(b.conn.SetAddElements, name, after.sets[name], minus(after.sets[name], before.sets[name]), six)
	}
	for _, name := range sortedKeys(after.chains) {
		old := before.chains[name]
		if old != nil && reflect.DeepEqual(old.rules, after.chains[name].rules) {
			continue
		}
		if old != nil {
			b.conn.FlushChain(&nftables.Chain{Name: name, Table: b.table})
			b.size++
		}
		for _, rule := range after.chains[name].rules {
			b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: &nftables.Chain{Name: name}, Exprs: rule})
			b.size++
		}
	}
	// Only each other calls these chains any more, and then nothing uses these sets and counters.
	gone := slices.DeleteFunc(sortedKeys(before.chains), func(name string) bool { return after.chains[name] != nil })
	for _, name := range gone {
		b.conn.FlushChain(&nftables.Chain{Name: name, Table: b.table})
	}
	for _, name := range gone {
		b.conn.DelChain(&nftables.Chain{Name: name, Table: b.table})
	}
	b.size += 2 * len(gone)
	for _, name := range sortedKeys(before.sets) {
		if after.sets[name] == nil {
			b.conn.DelSet(b.handle(name, before.sets[name], six))
			b.size++
		}
	}
	for _, name := range sortedKeys(before.counters) {
		if !after.counters[name] {
			b.conn.DeleteObject(b.counter(name))
			b.size++
		}
	}
}

func (b *batch) counter(name string) *nftables.NamedObj {
	return &nftables.NamedObj{Table: b.table, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}}
}

func (b *batch) note(err error) {
	b.size++
	if b.err == nil {
		b.err = err
	}
}

func (b *batch) addChain(name string, c *chain) {
	out := &nftables.Chain{Name: name, Table: b.table}
	if c.hook != nil {
		policy := nftables.ChainPolicyAccept
		out.Hooknum, out.Priority, out.Type, out.Policy = c.hook, &c.priority, c.kind, &policy
	}
	b.conn.AddChain(out)
	b.size++
}

// handle is what the kernel is told about a set.
func (b *batch) handle(name string, s *set, six bool) *nftables.Set {
	address := nftables.TypeIPAddr
	if six {
		address = nftables.TypeIP6Addr
	}
	// Sets are found by name. The ID only keeps the library from taking one of its own,
	// which it does without a lock.
	out := &nftables.Set{Table: b.table, Name: name, ID: 1, KeyType: address, Interval: true}
	switch s.kind {
	case links:
		out.KeyType, out.KeyByteOrder, out.Interval, out.HasTimeout = nftables.TypeIFName, binaryutil.NativeEndian, false, true
	case pairs:
		out.KeyType, out.Concatenation = nftables.MustConcatSetType(address, address), true
	case verdicts:
		out.IsMap, out.DataType = true, nftables.TypeVerdict
	case translations:
		out.IsMap, out.DataType, out.Interval = true, address, false
	case limited:
		out.Interval, out.Dynamic, out.Size, out.HasTimeout, out.Timeout = false, true, mostSources, true, rateLife
	case counted:
		out.Interval, out.Dynamic, out.Size = false, true, mostSources
	}
	return out
}

const (
	// mostSources is of how many addresses a set that the kernel fills can keep something: a peer can make addresses up.
	mostSources = 4096
	// rateLife is after which time the kernel forgets how fast an address was. Until then, it may begin as much at once again.
	rateLife = 2 * time.Minute
)

// elements applies an operation to elements of a set, in several messages.
func (b *batch) elements(op func(*nftables.Set, []nftables.SetElement) error, name string, s *set, elements []element, six bool) {
	for part := range slices.Chunk(elements, chunk) {
		var encoded []nftables.SetElement
		for _, e := range part {
			encoded = append(encoded, encode(s.kind, e)...)
		}
		b.note(op(b.handle(name, s, six), encoded))
	}
}

// encode returns how the kernel represents an interval: by the element after its last one,
// except in concatenations.
func encode(kind kind, e element) []nftables.SetElement {
	if kind == links {
		out := nftables.SetElement{Key: padded(e.link)}
		if e.renewal > 0 {
			out.Timeout = tunnelLife
		}
		return []nftables.SetElement{out}
	}
	start := nftables.SetElement{Key: e.from.AsSlice()}
	switch kind {
	case pairs:
		start.Key = append(start.Key, e.toFrom.AsSlice()...)
		start.KeyEnd = append(e.to.AsSlice(), e.toLast.AsSlice()...)
		return []nftables.SetElement{start}
	case verdicts:
		start.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.chain}
	case translations:
		start.Val = e.toFrom.AsSlice()
		return []nftables.SetElement{start}
	}
	next := e.to.Next()
	if !next.IsValid() {
		return []nftables.SetElement{start} // up to the last address there is
	}
	return []nftables.SetElement{start, {Key: next.AsSlice(), IntervalEnd: true}}
}

// minus returns the elements of a that b has not, in order. A nil set is empty.
func minus(a, b *set) []element {
	if b == nil {
		return a.elements
	}
	if slices.Equal(a.elements, b.elements) {
		return nil // as nearly always
	}
	var out []element
	rest := b.elements
	for _, e := range a.elements {
		for len(rest) > 0 && rest[0].compare(e) < 0 {
			rest = rest[1:]
		}
		if len(rest) == 0 || rest[0] != e {
			out = append(out, e)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
