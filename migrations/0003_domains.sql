-- DNS domains to look for clusters in that somebody added on the command line.
-- autojoin NULL: as the configuration says.
CREATE TABLE search_domains (
  domain       TEXT    PRIMARY KEY CHECK (domain <> ''),
  autojoin     INTEGER CHECK (autojoin IN (0, 1)),
  server       TEXT    NOT NULL,
  min_interval INTEGER NOT NULL CHECK (min_interval > 0),
  max_interval INTEGER NOT NULL CHECK (max_interval >= min_interval),
  added_by     TEXT    NOT NULL,
  added_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What the ClusterConfig said last, for a start before the API server is there.
-- One row at most.
CREATE TABLE cluster_config (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  content TEXT    NOT NULL CHECK (json_valid(content)),
  at      INTEGER NOT NULL
) STRICT;

-- Sightings with the search domain that led to them ('' for other sources): one
-- instance can be seen in several. The new table begins at a page that no table
-- had before, so that a damaged file of either schema is never read as one of the
-- other.
CREATE TABLE sightings_by_domain (
  cluster_id   TEXT    NOT NULL REFERENCES peers ON DELETE CASCADE,
  source       TEXT    NOT NULL,
  link         TEXT    NOT NULL,
  domain       TEXT    NOT NULL DEFAULT '',
  instance     TEXT    NOT NULL,
  cluster_name TEXT    NOT NULL,
  namespace    TEXT    NOT NULL,
  fingerprint  BLOB    CHECK (length(fingerprint) = 32),
  version      TEXT    NOT NULL,
  addrs        TEXT    NOT NULL,
  url          TEXT    NOT NULL,
  ttl          INTEGER NOT NULL,
  changed_at   INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, source, link, domain, instance)
) STRICT, WITHOUT ROWID;

INSERT INTO sightings_by_domain (cluster_id, source, link, instance, cluster_name, namespace, fingerprint, version, addrs, url, ttl, changed_at)
  SELECT cluster_id, source, link, instance, cluster_name, namespace, fingerprint, version, addrs, url, ttl, changed_at FROM sightings;

DROP TABLE sightings;

ALTER TABLE sightings_by_domain RENAME TO sightings;
