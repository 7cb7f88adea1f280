-- 1 for a peer that was forgotten while objects in an API server may still say what
-- was wanted of it; the row goes as soon as none of them does.
ALTER TABLE peerings ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
