-- Under which addresses the pods of two clusters know each other: those of the peer's pods in
-- their cluster, what we chose for them here, and what the peer chose for ours. Prefixes,
-- separated by ' '.
CREATE TABLE network (
  cluster_id TEXT PRIMARY KEY,
  pods       TEXT NOT NULL,
  theirs     TEXT NOT NULL,
  ours       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
