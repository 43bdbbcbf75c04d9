-- Updated in place: a write to a record that is there touches this table's page and the end of
-- the log, and no index unless its time to live changes.
CREATE TABLE holdfast_records (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    -- JSON, see sql/records.py. NULL: it was deleted, and its last operation is remembered.
    fields TEXT,
    -- From then on it is absent; a deleted one's row may go.
    expires_at INTEGER,
    updated_at INTEGER NOT NULL,
    commit_id INTEGER NOT NULL,
    op_id BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_records_by_key ON holdfast_records (namespace, key);

CREATE INDEX holdfast_records_by_expiry ON holdfast_records (expires_at) WHERE expires_at IS NOT NULL;

-- The log of changes. Only the newest entry of a record counts: the one with its commit id.
CREATE TABLE holdfast_record_changes (
    commit_id INTEGER PRIMARY KEY,
    record_id INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE holdfast_record_indexes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    prefix TEXT NOT NULL,
    fields TEXT NOT NULL,  -- a JSON list
    -- Older records up to this key are in it; NULL: all are.
    filled_upto TEXT,
    UNIQUE (namespace, prefix, fields)
) STRICT;

CREATE TABLE holdfast_record_index_entries (
    index_id INTEGER NOT NULL,
    lead TEXT NOT NULL,
    sort TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (index_id, lead, sort, key)
) STRICT, WITHOUT ROWID;

-- Entries of the log up to here may be gone.
ALTER TABLE holdfast_store_state ADD COLUMN records_floor INTEGER NOT NULL DEFAULT 0;

-- The last commit id that was given out: one series for the whole store.
CREATE VIEW holdfast_last_commit (commit_id) AS
SELECT max(
    s.commit_floor,
    coalesce((SELECT max(v.commit_id) FROM holdfast_cell_versions AS v), 0),
    coalesce((SELECT max(c.commit_id) FROM holdfast_record_changes AS c), 0)
)
FROM holdfast_store_state AS s;
