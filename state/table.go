package state

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"
)

// tables are all tables of the newest schema, parents before children. Whoever
// adds one writes a migration, a description, and a line here.
var tables = []described{
	identityTable, trustTable, preferenceTable, inviteTable, peeringTable, searchDomainTable, configTable, writerTable,
	peerTable, endpointTable, sightingTable, networkTable, eventTable,
}

// described is a table of whatever rows.
type described interface {
	about() *aspects
	copyRows(ctx context.Context, from, to *sql.Conn) (int, error)
}

// aspects are what a description says that needs no row.
type aspects struct {
	name string
	// decided: a row is something that somebody decided about the peer of its
	// cluster_id, which is never dropped then.
	decided bool
	// ofPeer: rows go when the peer of their cluster_id is forgotten.
	ofPeer bool
	// expired is the condition for rows that Prune drops, ?1 the time; "" keeps all.
	// unlessDecided: but not of peers that somebody decided anything about.
	expired       string
	unlessDecided bool

	list string // of all columns; filled in by describe
}

func (a *aspects) about() *aspects { return a }

// column is a column in one row.
type column struct {
	name string
	// at is where the row has the value, for Scan and for arguments of a statement.
	// Its type says how the value is stored, and bounds it (see values.go).
	at   any
	role role
}

// role says what a column is to its row.
type role uint8

const (
	value  role = iota // another value is a change
	key                // tells rows apart
	along              // written with a change, and no change itself
	once               // as along, and never overwritten
	latest             // as along, and never becomes less
)

// table describes a table of rows R: all that is read, written, compared, bounded,
// dropped, upgraded and salvaged follows from it.
type table[R any] struct {
	aspects
	columns func(*R) []column
	check   func(*R) error // what no new row may say; may be nil

	// What describe makes of that: the roles of the columns, a list of those of the
	// key, and statements.
	roles                               []role
	keys, selects, stores, saves, drops string
}

// describe completes a description.
func describe[R any](t table[R]) *table[R] {
	var names, keys, matches, sets []string
	for _, c := range t.columns(new(R)) {
		t.roles = append(t.roles, c.role)
		names = append(names, c.name)
		switch c.role {
		case key:
			keys = append(keys, c.name)
			matches = append(matches, c.name+" = ?")
		case latest:
			sets = append(sets, fmt.Sprintf("%s = max(%[1]s, excluded.%[1]s)", c.name))
		case value, along:
			sets = append(sets, fmt.Sprintf("%s = excluded.%[1]s", c.name))
		}
	}
	t.list, t.keys = strings.Join(names, ", "), strings.Join(keys, ", ")
	into := fmt.Sprintf("INTO %s (%s) VALUES (?%s)", t.name, t.list, strings.Repeat(", ?", len(names)-1))
	t.selects = "SELECT " + t.list + " FROM " + t.name + " "
	t.stores = "INSERT " + into + " ON CONFLICT (" + t.keys + ") DO UPDATE SET " + strings.Join(sets, ", ")
	t.saves = "INSERT OR IGNORE " + into
	t.drops = "DELETE FROM " + t.name + " WHERE " + strings.Join(matches, " AND ")
	return &t
}

// read returns the rows that which selects, a WHERE clause or "", in the order of
// their keys if it does not give another.
func (t *table[R]) read(ctx context.Context, conn *sql.Conn, which string, args ...any) ([]R, error) {
	if !strings.Contains(which, "ORDER BY") {
		which += " ORDER BY " + t.keys
	}
	var rows []R
	var r R
	places := t.places(&r)
	err := query(ctx, conn, func(scan func(...any) error) error {
		r = *new(R)
		err := scan(places...)
		rows = append(rows, r)
		return err
	}, t.selects+which, args...)
	return rows, err
}

// rows is read for one who does not have the connection.
func (t *table[R]) rows(ctx context.Context, s *Store, which string, args ...any) (rows []R, err error) {
	err = s.read(ctx, func(ctx context.Context) (err error) {
		rows, err = t.read(ctx, s.conn, which, args...)
		return err
	})
	return rows, err
}

// one returns the row that which selects, nil for none.
func (t *table[R]) one(ctx context.Context, conn *sql.Conn, which string, args ...any) (*R, error) {
	rows, err := t.read(ctx, conn, which, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func (t *table[R]) places(r *R) []any {
	places := make([]any, 0, len(t.roles))
	for _, c := range t.columns(r) {
		places = append(places, c.at)
	}
	return places
}

// values returns a row as it is stored. The error says what is out of bounds.
func (t *table[R]) values(r *R) ([]any, error) {
	values := make([]any, 0, len(t.roles))
	for _, place := range t.places(r) {
		v, err := converted(place)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// converted returns a value as it is stored.
func converted(place any) (driver.Value, error) {
	return driver.DefaultParameterConverter.ConvertValue(place)
}

// change makes want of the stored row have, both nil for none: by nothing when they
// say the same.
func (t *table[R]) change(have, want *R) ([]op, error) {
	if have == nil && want == nil {
		return nil, nil
	}
	if want == nil {
		old, err := t.values(have)
		return []op{{t.drops, t.keyOf(old)}}, err
	}
	if have != nil && t.same(have, want) {
		return nil, nil
	}
	values, err := t.values(want)
	if err != nil {
		return nil, err
	}
	if t.check != nil {
		err = t.check(want)
	}
	return []op{{t.stores, values}}, err
}

// same reports whether want says what the stored row of its key says, within bounds.
func (t *table[R]) same(have, want *R) bool {
	old := t.columns(have)
	for i, c := range t.columns(want) {
		switch c.role {
		case value:
			if !sameStored(old[i].at, c.at) {
				return false
			}
		case along:
			if _, err := converted(c.at); err != nil {
				return false
			}
		}
	}
	return true
}

// sameStored reports whether two values of a column are stored alike. Most are equal
// as they are, which saves converting them.
func sameStored(a, b any) bool {
	if x, y := reflect.ValueOf(a), reflect.ValueOf(b); x.Kind() == reflect.Pointer && x.Elem().Comparable() && x.Elem().Equal(y.Elem()) {
		return true
	}
	x, err := converted(a)
	y, bad := converted(b)
	return err == nil && bad == nil && reflect.DeepEqual(x, y)
}

// keyOf returns the values of the key.
func (t *table[R]) keyOf(values []any) (some []any) {
	for i, v := range values {
		if t.roles[i] == key {
			some = append(some, v)
		}
	}
	return some
}

// keep drops of the rows that a condition selects all but the first n in an order.
func (t *table[R]) keep(n int, condition, order string, args ...any) op {
	return op{fmt.Sprintf("DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE %[3]s ORDER BY %[4]s LIMIT -1 OFFSET %[5]d)",
		t.name, t.keys, condition, order, n), args}
}

// copyRows adds to a database every row of another that can be read and that the
// schema accepts, and returns their number: from the beginning of the table up to
// the damage, if there is any, and then from its end down to it. Only failing to
// write is an error.
func (t *table[R]) copyRows(ctx context.Context, from, to *sql.Conn) (kept int, err error) {
	known := map[string]bool{} // an older schema has fewer columns, or not even the table
	err = query(ctx, from, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		known[name] = true
		return err
	}, "SELECT name FROM pragma_table_info(?)", t.name)
	if err != nil || len(known) == 0 {
		return 0, nil //nolint:nilerr // there is nothing to be had
	}
	columns := func(r *R) (names []string, places []any) {
		for _, c := range t.columns(r) {
			if known[c.name] {
				names, places = append(names, c.name), append(places, c.at)
			}
		}
		return names, places
	}
	names, _ := columns(new(R))
	for _, order := range []string{"", " ORDER BY 1 DESC"} {
		var failed error
		damage := query(ctx, from, func(scan func(...any) error) error {
			var r R
			_, places := columns(&r)
			err := scan(places...)
			values, bad := t.values(&r)
			if err != nil || bad != nil {
				return nil // this row is lost, the next may not be
			}
			var n int64
			res, err := to.ExecContext(ctx, t.saves, values...)
			if err == nil {
				n, err = res.RowsAffected()
				kept += int(n)
			}
			if code(err) != sqlite3.SQLITE_CONSTRAINT {
				failed = err
			}
			return failed
		}, "SELECT "+strings.Join(names, ", ")+" FROM "+t.name+order)
		if failed != nil || damage == nil {
			return kept, failed
		}
	}
	return kept, nil
}

// copyTables adds every readable row of all tables, and counts them by table.
func copyTables(ctx context.Context, from, to *sql.Conn, kept map[string]int) error {
	return inTransaction(ctx, to, func() error {
		for _, t := range tables {
			n, err := t.copyRows(ctx, from, to)
			kept[t.about().name] += n
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// batch collects the statements of a transaction, up to an error.
type batch struct {
	ops []op
	err error
}

func (b *batch) add(ops []op, err error) {
	if b.ops = append(b.ops, ops...); b.err == nil {
		b.err = err
	}
}
