package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// maxConfigLength bounds a remembered ClusterConfig, in bytes: hundreds of times
	// what its schema allows.
	maxConfigLength = 64 << 10
	// maxWriter bounds the version that a database says it was written by, in bytes.
	maxWriter = 64
)

// selfRow is a row of the tables that say something about ourselves, of which each
// has one at most.
type selfRow struct {
	id     peer.ClusterID // identity
	origin string         // identity
	text   string         // cluster_config, writer
	at     time.Time
}

var identityTable = describe(table[selfRow]{
	aspects: aspects{name: "identity"},
	columns: func(r *selfRow) []column {
		return []column{{"id", single{}, key}, {"cluster_id", (*clusterID)(&r.id), value}, {"origin", &r.origin, value},
			{"decided_at", at(&r.at), along}}
	},
})

var configTable = describe(table[selfRow]{
	aspects: aspects{name: "cluster_config"},
	columns: func(r *selfRow) []column {
		return []column{{"id", single{}, key}, {"content", atMost(maxConfigLength, "the ClusterConfig", &r.text), value}, {"at", at(&r.at), along}}
	},
	check: func(r *selfRow) error {
		if !json.Valid([]byte(r.text)) {
			return errors.New("the ClusterConfig to remember is not JSON")
		}
		return nil
	},
})

var writerTable = describe(table[selfRow]{
	aspects: aspects{name: "writer"},
	columns: func(r *selfRow) []column {
		return []column{{"id", single{}, key}, {"version", &r.text, value}, {"since", at(&r.at), along}}
	},
	check: func(r *selfRow) error {
		if r.text == "" || text.Line(r.text, maxWriter) != r.text {
			return fmt.Errorf("%q is no version to be remembered", r.text)
		}
		return nil
	},
})

// self returns the row of a table about ourselves, a zero one for none.
func (s *Store) self(ctx context.Context, t *table[selfRow]) (selfRow, error) {
	rows, err := t.rows(ctx, s, "")
	return append(rows, selfRow{})[0], err
}

// setSelf makes it that row; nil for none.
func (s *Store) setSelf(ctx context.Context, d durability, t *table[selfRow], want *selfRow) error {
	return s.change(ctx, d, func(ctx context.Context) ([]op, error) {
		have, err := t.one(ctx, s.conn, "")
		if err != nil {
			return nil, err
		}
		if want != nil {
			want.at = s.now()
		}
		return t.change(have, want)
	})
}

// ClusterID returns our own cluster ID, or "" when none was decided yet.
func (s *Store) ClusterID(ctx context.Context) (peer.ClusterID, error) {
	r, err := s.self(ctx, identityTable)
	return r.id, err
}

// SetClusterID remembers our own cluster ID and where it came from, a few
// words for people. It is on the disk when the call returns.
func (s *Store) SetClusterID(ctx context.Context, id peer.ClusterID, origin string) error {
	return s.setSelf(ctx, onDisk, identityTable, &selfRow{id: id, origin: origin})
}

// RememberedConfig returns what RememberConfig was given last; found is false when
// that was nothing.
func (s *Store) RememberedConfig(ctx context.Context) (content []byte, found bool, err error) {
	r, err := s.self(ctx, configTable)
	return []byte(r.text), r.text != "", err
}

// RememberConfig keeps what the ClusterConfig says, in JSON; nil forgets it. It is
// on the disk when the call returns, and written only when it is another text than
// before.
func (s *Store) RememberConfig(ctx context.Context, content []byte) error {
	if content == nil {
		return s.setSelf(ctx, onDisk, configTable, nil)
	}
	return s.setSelf(ctx, onDisk, configTable, &selfRow{text: string(content)})
}

// SetWriter remembers which version of the agent writes the database. It writes
// only when that is another one than before.
func (s *Store) SetWriter(ctx context.Context, version string) error {
	return s.setSelf(ctx, buffered, writerTable, &selfRow{text: version})
}

// writtenBy is the version that wrote a database of any schema, as far as it can
// be had and shown.
func writtenBy(ctx context.Context, conn *sql.Conn) string {
	r, err := writerTable.one(ctx, conn, "")
	if err != nil || r == nil {
		return "" // older schemas have no such table
	}
	return text.Line(r.text, maxWriter)
}
