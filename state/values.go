package state

import (
	"database/sql/driver"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// What a column's type says about it, where a pointer to the value alone does not do.

// clusterID is one that a cluster can have. Damage can make the cells of one table
// look like those of another, and this tells them apart.
type clusterID peer.ClusterID

func (c *clusterID) Value() (driver.Value, error) {
	id, err := peer.ParseClusterID(string(*c))
	return string(id), err
}

// single is the key of a table with one row at most.
type single struct{}

func (single) Scan(any) error               { return nil }
func (single) Value() (driver.Value, error) { return int64(1), nil }

// rowID is a number that SQLite chooses when it is 0.
type rowID int64

func (n *rowID) Value() (driver.Value, error) {
	if *n == 0 {
		return nil, nil
	}
	return int64(*n), nil
}

// stamp is a time in milliseconds since 1970 UTC. An unknown one is 0, or NULL.
type stamp struct {
	of      *time.Time
	unknown any
}

func at(t *time.Time) stamp       { return stamp{t, int64(0)} }
func atOrNull(t *time.Time) stamp { return stamp{t, nil} }

func (s stamp) Scan(src any) error {
	ms, err := number(src)
	*s.of = fromMillis(ms)
	return err
}

func (s stamp) Value() (driver.Value, error) {
	if s.of.IsZero() {
		return s.unknown, nil
	}
	return s.of.UnixMilli(), nil
}

// span is a duration in milliseconds.
type span time.Duration

func (d *span) Scan(src any) error {
	ms, err := number(src)
	*d = span(time.Duration(ms) * time.Millisecond)
	return err
}

func (d *span) Value() (driver.Value, error) { return time.Duration(*d).Milliseconds(), nil }

func number(src any) (int64, error) {
	n, ok := src.(int64)
	if !ok && src != nil {
		return 0, fmt.Errorf("%T is no number", src)
	}
	return n, nil
}

// hash is a SHA-256; a zero one is NULL.
type hash [32]byte

func (h *hash) Scan(src any) error {
	b, _ := src.([]byte)
	if copy(h[:], b) < len(h) && src != nil {
		return fmt.Errorf("%T of %d bytes is no hash", src, len(b))
	}
	return nil
}

func (h *hash) Value() (driver.Value, error) {
	if *h == (hash{}) {
		return nil, nil
	}
	return h[:], nil
}

// yesNo is a Decision: NULL for none, 0 or 1.
type yesNo Decision

func (d *yesNo) Scan(src any) error {
	n, err := number(src)
	if *d = yesNo(Undecided); src != nil {
		*d = yesNo(Decide(n != 0))
	}
	return err
}

func (d *yesNo) Value() (driver.Value, error) {
	if *d == yesNo(Undecided) {
		return nil, nil
	}
	return *d == yesNo(Yes), nil
}

// words are a text with a bound.
type words struct {
	of    *string
	what  string // that is refused when it is longer than max bytes; "" is clipped
	max   int    // 0: no bound
	empty any    // how nothing is stored
}

// maxDetailLength bounds a text for people that may have come from the network.
const maxDetailLength = 500

func clipped(s *string) words                    { return words{of: s, max: maxDetailLength, empty: ""} }
func orNull(s *string) words                     { return words{of: s} }
func atMost(n int, what string, s *string) words { return words{s, what, n, ""} }

func (w words) Scan(src any) error {
	s, ok := src.(string)
	if !ok && src != nil {
		return fmt.Errorf("%T is no text", src)
	}
	*w.of = s
	return nil
}

func (w words) Value() (driver.Value, error) {
	switch {
	case *w.of == "":
		return w.empty, nil
	case w.max == 0 || len(*w.of) <= w.max:
		return *w.of, nil
	case w.what == "":
		return text.Clip(*w.of, w.max), nil
	}
	return nil, fmt.Errorf("%s is %d bytes long, at most %d are allowed", w.what, len(*w.of), w.max)
}

// Lists are kept in one column with a separator that neither an interface name
// nor an address can contain (the kernel refuses '/' and white space in names).
// The bytes between are kept as they are, so every zone reads back.
const listSeparator = "/"

// list is a list of words without the separator.
type list []string

func (l *list) Scan(src any) error {
	var joined string
	if err := (words{of: &joined}).Scan(src); err != nil || joined == "" {
		*l = nil
		return err
	}
	*l = strings.Split(joined, listSeparator)
	return nil
}

func (l *list) Value() (driver.Value, error) { return strings.Join(*l, listSeparator), nil }

// addresses are kept as 'ip port zone'. Invalid ones are left out, as are those that
// a bit error on the disk has changed beyond reading: they will be observed again.
type addresses []netip.AddrPort

func (a *addresses) Scan(src any) error {
	var kept list
	err := kept.Scan(src)
	*a = nil
	for _, word := range kept {
		ip, rest, _ := strings.Cut(word, " ")
		port, zone, _ := strings.Cut(rest, " ")
		number, err := strconv.ParseUint(port, 10, 16)
		if addr, ok := joinAddr(ip, zone, uint16(number)); ok && err == nil {
			*a = append(*a, addr)
		}
	}
	return err
}

func (a *addresses) Value() (driver.Value, error) {
	var kept list
	for _, one := range *a {
		if one.IsValid() {
			kept = append(kept, fmt.Sprintf("%s %d %s", one.Addr().WithZone(""), one.Port(), one.Addr().Zone()))
		}
	}
	return kept.Value()
}

func joinAddr(ip, zone string, port uint16) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(ip)
	return netip.AddrPortFrom(addr.WithZone(zone), port), err == nil
}

// millis is how times are stored: see stamp.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
