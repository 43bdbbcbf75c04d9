-- Table names carry a prefix because the caller's own tables may live in the same file.

CREATE TABLE holdfast_store_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    clock_offset_us INTEGER NOT NULL,
    -- Commit ids continue above this even when the newest versions are gone.
    commit_floor INTEGER NOT NULL
) STRICT;

INSERT INTO holdfast_store_state (id, clock_offset_us, commit_floor) VALUES (1, 0, 0);

-- Commit ids up to last_commit were given out before this became a copy of its own (a backup):
-- whoever followed the original beyond that has seen what never was here.
CREATE TABLE holdfast_epochs (
    epoch INTEGER PRIMARY KEY,
    first_commit INTEGER NOT NULL,
    last_commit INTEGER  -- NULL: this is the present one
) STRICT;

INSERT INTO holdfast_epochs (epoch, first_commit, last_commit) VALUES (1, 0, NULL);

-- `main` has no row: it is branch 0 of every namespace.
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

CREATE INDEX holdfast_branches_by_parent ON holdfast_branches (namespace, parent_id, fork_commit);

CREATE UNIQUE INDEX holdfast_branches_by_op ON holdfast_branches (namespace, op_id);

-- Every version of every cell; the newest one of a cell is the cell. The commit id is the rowid,
-- so new versions go to the end of the table: one hot page.
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

-- Whatever a write or a list must know of a cell is here, beside its key.
CREATE INDEX holdfast_cell_versions_by_cell
ON holdfast_cell_versions
    (namespace, branch_id, name, commit_id, version, updated_at, deleted, hidden);

-- The store's own ids are looked for only after a failed commit: not worth a page per write.
CREATE INDEX holdfast_cell_versions_by_op ON holdfast_cell_versions (op_id) WHERE op_given;
