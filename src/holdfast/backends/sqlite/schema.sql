-- GENERATED from migrations/ by tools/dump_schema.py: add a migration instead.

CREATE TABLE holdfast_branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    parent_id INTEGER NOT NULL,
    fork_commit INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    op_id BLOB NOT NULL,
    -- A deleted branch stays for as long as others see its cells.
    deleted_at INTEGER,
    deleted_op BLOB
) STRICT;

CREATE UNIQUE INDEX holdfast_branches_by_name ON holdfast_branches (namespace, name)
WHERE deleted_at IS NULL;

CREATE UNIQUE INDEX holdfast_branches_by_op ON holdfast_branches (namespace, op_id);

CREATE INDEX holdfast_branches_by_parent ON holdfast_branches (namespace, parent_id, fork_commit);

CREATE TABLE holdfast_cell_versions (
    commit_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    branch_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    op_id BLOB NOT NULL,
    op_given INTEGER NOT NULL,
    -- Retention has dropped it, but another branch still sees it.
    hidden INTEGER NOT NULL DEFAULT 0,
    value TEXT,
    deleted INTEGER NOT NULL GENERATED ALWAYS AS (value IS NULL) VIRTUAL
) STRICT;

CREATE INDEX holdfast_cell_versions_by_cell
ON holdfast_cell_versions
    (namespace, branch_id, name, commit_id, version, updated_at, deleted, hidden);

CREATE INDEX holdfast_cell_versions_by_op ON holdfast_cell_versions (op_id) WHERE op_given;

CREATE VIEW holdfast_cuts (namespace, branch_id, commit_id) AS
SELECT namespace, parent_id, fork_commit FROM holdfast_branches
UNION ALL
SELECT namespace, source_id, source_commit FROM holdfast_merges;

CREATE TABLE holdfast_deliveries (
    group_id INTEGER NOT NULL,
    commit_id INTEGER NOT NULL,
    -- When to deliver it again. NULL: never, it is a dead letter.
    due_at INTEGER,
    number INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    died_at INTEGER,
    PRIMARY KEY (group_id, commit_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_deliveries_by_due ON holdfast_deliveries (group_id, due_at)
WHERE due_at IS NOT NULL;

CREATE TABLE holdfast_epochs (
    epoch INTEGER PRIMARY KEY,
    first_commit INTEGER NOT NULL,
    last_commit INTEGER  -- NULL: this is the present one
) STRICT;

CREATE TRIGGER holdfast_events_stay BEFORE DELETE ON holdfast_events
WHEN NOT EXISTS (SELECT 1 FROM holdfast_runs AS r WHERE r.id = old.run AND r.gone)
BEGIN
    SELECT raise(ABORT, 'events are never deleted one by one: delete the run');
END;

CREATE TRIGGER holdfast_events_stay_as_they_are BEFORE UPDATE ON holdfast_events
BEGIN
    SELECT raise(ABORT, 'events are never changed: append another one');
END;

CREATE TABLE holdfast_events (
    commit_id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    run_seq INTEGER NOT NULL,
    key TEXT NOT NULL,
    event_id BLOB NOT NULL,
    event_type TEXT NOT NULL,
    emitted_at INTEGER NOT NULL,
    persisted_at INTEGER NOT NULL,
    data TEXT NOT NULL,
    more TEXT
) STRICT;

CREATE UNIQUE INDEX holdfast_events_by_id ON holdfast_events (event_id, run);

CREATE UNIQUE INDEX holdfast_events_by_key ON holdfast_events (run, key);

CREATE UNIQUE INDEX holdfast_events_by_seq ON holdfast_events (run, run_seq);

CREATE TABLE holdfast_group_operations (
    namespace TEXT NOT NULL,
    op_id BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    answer INTEGER NOT NULL,
    PRIMARY KEY (namespace, op_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_group_operations_by_expiry ON holdfast_group_operations (expires_at);

CREATE TABLE holdfast_groups (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    subjects TEXT NOT NULL,  -- a JSON list
    ack_timeout_us INTEGER NOT NULL,
    max_deliveries INTEGER NOT NULL,
    -- Messages up to here were delivered or are not for this group.
    position INTEGER NOT NULL,
    UNIQUE (namespace, name)
) STRICT;

CREATE VIEW holdfast_last_commit (commit_id) AS
SELECT max(
    s.commit_floor,
    coalesce((SELECT max(v.commit_id) FROM holdfast_cell_versions AS v), 0),
    coalesce((SELECT max(c.commit_id) FROM holdfast_record_changes AS c), 0),
    coalesce((SELECT max(m.commit_id) FROM holdfast_messages AS m), 0),
    coalesce((SELECT max(e.commit_id) FROM holdfast_events AS e), 0)
)
FROM holdfast_store_state AS s;

CREATE TABLE holdfast_merges (
    namespace TEXT NOT NULL,
    low_id INTEGER NOT NULL,
    high_id INTEGER NOT NULL,
    done INTEGER NOT NULL,
    source_id INTEGER NOT NULL,
    source_commit INTEGER NOT NULL,
    op_id BLOB NOT NULL,
    PRIMARY KEY (namespace, low_id, high_id, done)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_merges_by_source ON holdfast_merges (namespace, source_id, source_commit);

CREATE TABLE holdfast_messages (
    commit_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    message_id TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    trace_id TEXT,
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX holdfast_messages_by_id ON holdfast_messages (message_id, namespace, published_at);

CREATE INDEX holdfast_messages_by_namespace ON holdfast_messages (namespace, commit_id);

CREATE TABLE holdfast_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT
;

CREATE TABLE holdfast_record_changes (
    commit_id INTEGER PRIMARY KEY,
    record_id INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE holdfast_record_index_entries (
    index_id INTEGER NOT NULL,
    lead TEXT NOT NULL,
    sort TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (index_id, lead, sort, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_record_indexes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    prefix TEXT NOT NULL,
    fields TEXT NOT NULL,  -- a JSON list
    -- Older records up to this key are in it; NULL: all are.
    filled_upto TEXT,
    UNIQUE (namespace, prefix, fields)
) STRICT;

CREATE TRIGGER holdfast_records_log_changed AFTER UPDATE OF updated_at ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;

CREATE TRIGGER holdfast_records_log_new AFTER INSERT ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;

CREATE TABLE "holdfast_records" (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    -- See sql/records.py. NULL: it was deleted, and its last operation is remembered.
    fields ANY,
    -- From then on it is absent; a deleted one's row may go.
    expires_at INTEGER,
    updated_at INTEGER NOT NULL,
    commit_id INTEGER NOT NULL,
    op_id BLOB NOT NULL
) STRICT;

CREATE INDEX holdfast_records_by_expiry ON holdfast_records (expires_at) WHERE expires_at IS NOT NULL;

CREATE UNIQUE INDEX holdfast_records_by_key ON holdfast_records (namespace, key);

CREATE TABLE holdfast_run_views (
    run INTEGER NOT NULL,
    view TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (run, view)
) STRICT;

CREATE TABLE holdfast_runs (
    -- Never given out again: another run of the same name is another one.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    run_id TEXT NOT NULL,
    -- Being deleted: out of sight, and its events may go.
    gone INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX holdfast_runs_by_name ON holdfast_runs (namespace, run_id) WHERE NOT gone;

CREATE TABLE holdfast_store_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clock_offset_us INTEGER NOT NULL,
    -- Commit ids continue above this even when the newest versions are gone.
    commit_floor INTEGER NOT NULL
, records_floor INTEGER NOT NULL DEFAULT 0) STRICT;
