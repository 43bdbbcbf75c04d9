-- What became of operations on groups and dead letters: the same one again has the first answer.
-- See this migration of PostgreSQL's.
CREATE TABLE holdfast_group_operations (
    namespace TEXT NOT NULL,
    op_id BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    answer INTEGER NOT NULL,
    PRIMARY KEY (namespace, op_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_group_operations_by_expiry ON holdfast_group_operations (expires_at);
