-- From when until when the certificate of a fleet vouches for a key, and since when
-- the trust in the key is suspended because that has ended (0: it is not).
ALTER TABLE trust ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trust ADD COLUMN not_after INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trust ADD COLUMN suspended_at INTEGER NOT NULL DEFAULT 0;
