-- How much a person asks the peer for, as Kubernetes quantities; NULL for as much as
-- there is.
ALTER TABLE preferences ADD COLUMN cpu TEXT CHECK (cpu <> '');
ALTER TABLE preferences ADD COLUMN memory TEXT CHECK (memory <> '');

-- Whether a person accepted its requests while Liqo was to peer clusters here: one from before holds
-- for the agents' own sharing only.
ALTER TABLE preferences ADD COLUMN by_liqo INTEGER NOT NULL DEFAULT 0;
