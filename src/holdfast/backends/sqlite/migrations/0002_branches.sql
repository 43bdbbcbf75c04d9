-- Of two branches: their last merge, and one that is under way (done = 0).
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

-- Commits at which a branch is looked at from elsewhere: what was newest there then is kept.
CREATE VIEW holdfast_cuts (namespace, branch_id, commit_id) AS
SELECT namespace, parent_id, fork_commit FROM holdfast_branches
UNION ALL
SELECT namespace, source_id, source_commit FROM holdfast_merges;
