-- The log of messages.
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

-- For a namespace's groups, and for what is done in it.
CREATE INDEX holdfast_messages_by_namespace ON holdfast_messages (namespace, commit_id);

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

-- Messages that were delivered and are not done.
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

DROP VIEW holdfast_last_commit;

-- The last commit id that was given out: one series for the whole store.
CREATE VIEW holdfast_last_commit (commit_id) AS
SELECT max(
    s.commit_floor,
    coalesce((SELECT max(v.commit_id) FROM holdfast_cell_versions AS v), 0),
    coalesce((SELECT max(c.commit_id) FROM holdfast_record_changes AS c), 0),
    coalesce((SELECT max(m.commit_id) FROM holdfast_messages AS m), 0)
)
FROM holdfast_store_state AS s;
