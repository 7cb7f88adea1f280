-- Which version of the agent writes the database, and since when. One row at
-- most. The table and its columns stay as they are for ever: an older agent reads
-- them to say who wrote a schema that it does not know.
CREATE TABLE writer (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  version TEXT    NOT NULL CHECK (version <> ''),
  since   INTEGER NOT NULL
) STRICT;
