-- Times are milliseconds since 1970-01-01 UTC, durations are milliseconds; 0
-- is "unknown". All tables are STRICT: a value of the wrong type is an error,
-- not a surprise years later.

-- Who we are. One row at most.
CREATE TABLE identity (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  cluster_id TEXT    NOT NULL CHECK (cluster_id <> ''),
  origin     TEXT    NOT NULL,            -- where the ID came from, for people
  decided_at INTEGER NOT NULL
) STRICT;

-- Clusters we know of, as last seen.
CREATE TABLE peers (
  cluster_id  TEXT    PRIMARY KEY CHECK (cluster_id <> ''),
  name        TEXT    NOT NULL,
  namespace   TEXT    NOT NULL,
  fingerprint BLOB    CHECK (length(fingerprint) = 32), -- NULL: no key proven yet
  source      TEXT    NOT NULL,
  url         TEXT    NOT NULL,
  version     TEXT    NOT NULL,
  links       TEXT    NOT NULL,           -- interface names, separated by '/'
  ttl         INTEGER NOT NULL,
  first_seen  INTEGER NOT NULL,
  last_seen   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX peers_last_seen ON peers (last_seen);

-- Addresses a peer's key was seen at, now (gone_at is NULL) and before. The
-- zone of a link-local address has a column of its own, because an interface
-- name may contain any character an address is written with.
CREATE TABLE endpoints (
  cluster_id  TEXT    NOT NULL REFERENCES peers ON DELETE CASCADE,
  ip          TEXT    NOT NULL,
  zone        TEXT    NOT NULL,
  port        INTEGER NOT NULL CHECK (port BETWEEN 0 AND 65535),
  fingerprint BLOB    CHECK (length(fingerprint) = 32),
  source      TEXT    NOT NULL,
  link        TEXT    NOT NULL,
  first_seen  INTEGER NOT NULL,
  gone_at     INTEGER,
  PRIMARY KEY (cluster_id, ip, zone, port)
) STRICT, WITHOUT ROWID;

-- What each source says about a peer right now.
CREATE TABLE sightings (
  cluster_id   TEXT    NOT NULL REFERENCES peers ON DELETE CASCADE,
  source       TEXT    NOT NULL,
  link         TEXT    NOT NULL,
  instance     TEXT    NOT NULL,
  cluster_name TEXT    NOT NULL,
  namespace    TEXT    NOT NULL,
  fingerprint  BLOB    CHECK (length(fingerprint) = 32),
  version      TEXT    NOT NULL,
  addrs        TEXT    NOT NULL,          -- 'ip port zone', separated by '/', in the source's order
  url          TEXT    NOT NULL,
  ttl          INTEGER NOT NULL,
  changed_at   INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, source, link, instance)
) STRICT, WITHOUT ROWID;

-- What happened. Not tied to peers: history outlives them.
CREATE TABLE events (
  id         INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL,
  cluster_id TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  detail     TEXT    NOT NULL
) STRICT;

CREATE INDEX events_peer ON events (cluster_id, id);
CREATE INDEX events_at ON events (at);

-- What a person decided about a peer. Not tied to peers either: a decision
-- stands while its peer is away, however long. NULL is "never decided", which
-- is not the same as no: it follows the configuration.
CREATE TABLE preferences (
  cluster_id   TEXT    PRIMARY KEY CHECK (cluster_id <> ''),
  auto_connect INTEGER CHECK (auto_connect IN (0, 1)),
  auto_accept  INTEGER CHECK (auto_accept IN (0, 1)),
  blocked      INTEGER CHECK (blocked IN (0, 1)),
  alias        TEXT    UNIQUE CHECK (alias <> ''),
  note         TEXT    CHECK (note <> ''),
  changed_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
