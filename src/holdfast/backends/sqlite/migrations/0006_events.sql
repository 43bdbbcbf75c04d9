-- The runs of the event log.
CREATE TABLE holdfast_runs (
    -- Never given out again: another run of the same name is another one.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    run_id TEXT NOT NULL,
    -- Being deleted: out of sight, and its events may go.
    gone INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX holdfast_runs_by_name ON holdfast_runs (namespace, run_id) WHERE NOT gone;

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

CREATE UNIQUE INDEX holdfast_events_by_seq ON holdfast_events (run, run_seq);

CREATE UNIQUE INDEX holdfast_events_by_key ON holdfast_events (run, key);

CREATE UNIQUE INDEX holdfast_events_by_id ON holdfast_events (run, event_id);

CREATE TRIGGER holdfast_events_stay_as_they_are BEFORE UPDATE ON holdfast_events
BEGIN
    SELECT raise(ABORT, 'events are never changed: append another one');
END;

CREATE TRIGGER holdfast_events_stay BEFORE DELETE ON holdfast_events
WHEN NOT EXISTS (SELECT 1 FROM holdfast_runs AS r WHERE r.id = old.run AND r.gone)
BEGIN
    SELECT raise(ABORT, 'events are never deleted one by one: delete the run');
END;

-- The views of a run as a projector left them: true up to that number.
CREATE TABLE holdfast_run_views (
    run INTEGER NOT NULL,
    view TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (run, view)
) STRICT;

DROP VIEW holdfast_last_commit;

-- The last commit id that was given out: one series for the whole store.
CREATE VIEW holdfast_last_commit (commit_id) AS
SELECT max(
    s.commit_floor,
    coalesce((SELECT max(v.commit_id) FROM holdfast_cell_versions AS v), 0),
    coalesce((SELECT max(c.commit_id) FROM holdfast_record_changes AS c), 0),
    coalesce((SELECT max(m.commit_id) FROM holdfast_messages AS m), 0),
    coalesce((SELECT max(e.commit_id) FROM holdfast_events AS e), 0)
)
FROM holdfast_store_state AS s;
