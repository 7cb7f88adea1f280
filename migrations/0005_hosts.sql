-- The host name whose public certificate vouched for a key, and the search domain
-- that the name lies in ('' if a person gave the name).
ALTER TABLE trust ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE trust ADD COLUMN domain TEXT NOT NULL DEFAULT '';

-- The host names that were blocked together with a cluster, separated by '/'.
ALTER TABLE preferences ADD COLUMN blocked_hosts TEXT CHECK (blocked_hosts <> '');

-- Until now the name was only in the words about a pin, and any name counted: its
-- domain was the root.
UPDATE trust SET domain = '.', host = CASE
    WHEN detail LIKE 'the public certificate of %' THEN substr(detail, length('the public certificate of ') + 1)
    ELSE '' END
  WHERE method = 'SystemRoots';

UPDATE preferences SET blocked_hosts = (SELECT NULLIF(host, '') FROM trust WHERE trust.cluster_id = preferences.cluster_id)
  WHERE blocked = 1;
