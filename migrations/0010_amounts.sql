-- How much a person asks the peer for, as Kubernetes quantities; NULL for as much as
-- there is.
ALTER TABLE preferences ADD COLUMN cpu TEXT CHECK (cpu <> '');
ALTER TABLE preferences ADD COLUMN memory TEXT CHECK (memory <> '');
