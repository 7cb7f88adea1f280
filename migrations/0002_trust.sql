-- Comments stand between the statements: SQLite stores the text of a statement
-- with the comments in it, and the list of tables is best short (see
-- state/salvage.go).

-- Where a person said that the peer is.
ALTER TABLE preferences ADD COLUMN url TEXT CHECK (url <> '');

-- What was decided about the key of a cluster: trusted (1), or a person said no
-- (0, fingerprint is the key that was shown then, NULL for none). basis is what
-- the decision named: the key before any rotation, or that of the fleet's
-- authority.
CREATE TABLE trust (
  cluster_id  TEXT    PRIMARY KEY CHECK (cluster_id <> ''),
  trusted     INTEGER NOT NULL CHECK (trusted IN (0, 1)),
  fingerprint BLOB    CHECK (length(fingerprint) = 32),
  basis       BLOB    CHECK (length(basis) = 32),
  method      TEXT    NOT NULL,
  decided_by  TEXT    NOT NULL,
  decided_at  INTEGER NOT NULL,
  detail      TEXT    NOT NULL,
  CHECK (trusted = 0 OR fingerprint IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- One-time tokens that this cluster gave out. The secret itself is not kept.
CREATE TABLE invites (
  id          TEXT    PRIMARY KEY CHECK (length(id) = 16),
  secret_hash BLOB    NOT NULL CHECK (length(secret_hash) = 32),
  created_at  INTEGER NOT NULL,
  created_by  TEXT    NOT NULL,
  expires_at  INTEGER NOT NULL,
  note        TEXT    NOT NULL,
  used_at     INTEGER NOT NULL,
  used_by     TEXT    NOT NULL,
  revoked_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is remembered about the two peerings with a peer. joined: we consumed
-- its resources; once: only until that ends; hung_up: a person deleted the
-- ForeignCluster, and it has not been away since; ended_by_peer: why the peer
-- ended it. served: it consumed ours; request: the phase of its last
-- PeeringRequest; ended: why we ended it; rejected: the key of the request
-- that a person rejected. The stamps name the last edits with kubectl that
-- were taken in.
CREATE TABLE peerings (
  cluster_id    TEXT    PRIMARY KEY CHECK (cluster_id <> ''),
  joined        INTEGER NOT NULL,
  once          INTEGER NOT NULL,
  hung_up       INTEGER NOT NULL,
  ended_by_peer TEXT    NOT NULL,
  served        INTEGER NOT NULL,
  request       TEXT    NOT NULL,
  ended         TEXT    NOT NULL,
  rejected      BLOB    CHECK (length(rejected) = 32),
  connect_stamp TEXT    NOT NULL,
  trust_stamp   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
