-- GENERATED from migrations/ by tools/dump_schema.py: add a migration instead.

CREATE TABLE holdfast_branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    parent_id INTEGER NOT NULL,
    fork_commit INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;

CREATE UNIQUE INDEX holdfast_branches_by_name ON holdfast_branches (namespace, name)
WHERE deleted_at IS NULL;

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
    value TEXT,
    deleted INTEGER NOT NULL GENERATED ALWAYS AS (value IS NULL) VIRTUAL
) STRICT;

CREATE INDEX holdfast_cell_versions_by_cell
ON holdfast_cell_versions (namespace, branch_id, name, commit_id, version, updated_at, deleted);

CREATE INDEX holdfast_cell_versions_by_op ON holdfast_cell_versions (op_id) WHERE op_given;

CREATE TABLE holdfast_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT
;

CREATE TABLE holdfast_store_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clock_offset_us INTEGER NOT NULL,
    -- Commit ids continue above this even when the newest versions are gone.
    commit_floor INTEGER NOT NULL
) STRICT;
