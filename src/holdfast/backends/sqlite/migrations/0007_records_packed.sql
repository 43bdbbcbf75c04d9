-- Fields as MessagePack, which is read and written in less time than JSON; rows from before
-- keep their JSON until they are written again.
CREATE TABLE holdfast_records_packed (
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

INSERT INTO holdfast_records_packed
    (id, namespace, key, fields, expires_at, updated_at, commit_id, op_id)
SELECT id, namespace, key, fields, expires_at, updated_at, commit_id, op_id
FROM holdfast_records;

DROP TABLE holdfast_records;

ALTER TABLE holdfast_records_packed RENAME TO holdfast_records;

CREATE UNIQUE INDEX holdfast_records_by_key ON holdfast_records (namespace, key);

CREATE INDEX holdfast_records_by_expiry ON holdfast_records (expires_at) WHERE expires_at IS NOT NULL;

-- Whoever writes a record writes its log: one statement less for each write.
CREATE TRIGGER holdfast_records_log_new AFTER INSERT ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;

CREATE TRIGGER holdfast_records_log_changed AFTER UPDATE OF updated_at ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;
