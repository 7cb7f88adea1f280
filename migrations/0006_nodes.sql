-- What the node that stands for the peer is called ('' if it never had one).
ALTER TABLE peerings ADD COLUMN node TEXT NOT NULL DEFAULT '';
