-- Cells on SQLite. No row locks: BEGIN IMMEDIATE holds the one writer.
--
-- One table: a cell is its newest version. After set(a)=1, set(a)=2, delete(a):
--
--   cell_versions  (10, 'a', version 1, '1')  (11, 'a', version 2, '2')  (12, 'a', version 2, NULL)

-- name: get_cell
SELECT value, version, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name
ORDER BY commit_id DESC
LIMIT 1

-- name: list_names
-- From name to name: a plain scan would read every version of every cell. NULL instead of
-- "deleted": up to that commit there is no such cell.
WITH RECURSIVE found (name) AS (
    SELECT min(v.name)
    FROM hf.cell_versions AS v
    WHERE v.namespace = :namespace
      AND v.branch_id = :branch_id
      AND v.name >= :first
    UNION ALL
    SELECT (
        SELECT min(v.name)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = :branch_id
          AND v.name > f.name
    )
    FROM found AS f
    WHERE f.name < :end
    LIMIT :limit
)
SELECT f.name, (
    SELECT v.deleted
    FROM hf.cell_versions AS v
    WHERE v.namespace = :namespace
      AND v.branch_id = :branch_id
      AND v.name = f.name
      AND v.commit_id <= :upto
    ORDER BY v.commit_id DESC
    LIMIT 1
)
FROM found AS f
WHERE f.name < :end

-- name: get_newest
SELECT version, deleted, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = :branch_id
  AND name = :name
ORDER BY commit_id DESC
LIMIT 1

-- name: find_branch
SELECT id
FROM hf.branches
WHERE namespace = :namespace
  AND name = :branch
  AND deleted_at IS NULL

-- name: get_branch_cell
-- From level to level until there is a version; a tombstone is one. No row: no such branch.
WITH RECURSIVE walk (branch_id, found) AS (
    SELECT b.id, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = b.id
          AND v.name = :name
    )
    FROM hf.branches AS b
    WHERE b.namespace = :namespace
      AND b.name = :branch
      AND b.deleted_at IS NULL
    UNION ALL
    SELECT b.parent_id, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = b.parent_id
          AND v.name = :name
          AND v.commit_id <= b.fork_commit
    )
    FROM walk AS w
    JOIN hf.branches AS b ON b.id = w.branch_id
    WHERE w.found IS NULL
)
SELECT v.value, v.version, v.updated_at, v.commit_id
FROM walk AS w
LEFT JOIN hf.cell_versions AS v
  ON v.namespace = :namespace
 AND v.branch_id = w.branch_id
 AND v.name = :name
 AND v.commit_id = w.found
ORDER BY w.found IS NULL
LIMIT 1

-- name: get_inherited
-- The cell where the branch begins: from level to level until there is a version.
WITH RECURSIVE walk (branch_id, found) AS (
    SELECT :branch_id, NULL
    UNION ALL
    SELECT b.parent_id, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = b.parent_id
          AND v.name = :name
          AND v.commit_id <= b.fork_commit
    )
    FROM walk AS w
    JOIN hf.branches AS b ON b.id = w.branch_id
    WHERE w.found IS NULL
)
SELECT v.version, v.deleted, v.updated_at, v.commit_id
FROM walk AS w
JOIN hf.cell_versions AS v ON v.commit_id = w.found

-- name: find_op
SELECT version
FROM hf.cell_versions
WHERE op_given
  AND op_id = :op_id
  AND namespace = :namespace
  AND branch_id = :branch_id
  AND name = :name

-- name: find_own_op
-- An id of the store's own has no index. It is looked for after a failed commit, so it is
-- among the cell's newest if anywhere.
SELECT version
FROM hf.cell_versions
WHERE op_id = :op_id
  AND namespace = :namespace
  AND branch_id = :branch_id
  AND name = :name
ORDER BY commit_id DESC
LIMIT 1

-- name: add_version
INSERT INTO hf.cell_versions
    (commit_id, namespace, branch_id, name, version, updated_at, op_id, op_given, value)
VALUES (:commit_id, :namespace, :branch_id, :name, :version, :updated_at, :op_id, :op_given, :value)

-- name: trim_cell
-- Looks only at the oldest few versions of the cell, so a write that trims stays cheap.
-- A version's time ends where its successor's begins: it goes when that one is old enough.
-- Enough while there are no branches; else it is list_old, and then one version after the other.
DELETE FROM hf.cell_versions
WHERE commit_id IN (
    SELECT v.commit_id
    FROM (
        SELECT o.commit_id, o.version, o.hidden
        FROM hf.cell_versions AS o
        WHERE o.namespace = :namespace
          AND o.branch_id = :branch_id
          AND o.name = :name
        ORDER BY o.commit_id
        LIMIT :slice
    ) AS v
    WHERE v.commit_id < :newest_commit
      AND (
        v.hidden
        OR v.version <= :newest_version - :versions
        OR (
            SELECT n.updated_at
            FROM hf.cell_versions AS n
            WHERE n.namespace = :namespace
              AND n.branch_id = :branch_id
              AND n.name = :name
              AND n.commit_id > v.commit_id
            ORDER BY n.commit_id
            LIMIT 1
        ) <= :cutoff
      )
)
RETURNING hidden

-- name: list_old
-- The oldest few that retention does not keep, and whether each is still seen from elsewhere.
-- So is the first one on a branch: where its own history begins, its parent's must end.
SELECT v.commit_id, v.hidden, v.seen
FROM (
    SELECT r.commit_id, r.version, r.hidden, r.next_commit, (
        (:branch_id > 0 AND r.commit_id = (
            SELECT min(f.commit_id)
            FROM hf.cell_versions AS f
            WHERE f.namespace = :namespace
              AND f.branch_id = :branch_id
              AND f.name = :name
        ))
        OR EXISTS (
            SELECT 1
            FROM hf.cuts AS c
            WHERE c.namespace = :namespace
              AND c.branch_id = :branch_id
              AND c.commit_id >= r.commit_id
              AND c.commit_id < r.next_commit
        )
    ) AS seen
    FROM (
        SELECT o.commit_id, o.version, o.hidden, (
            SELECT min(n.commit_id)
            FROM hf.cell_versions AS n
            WHERE n.namespace = :namespace
              AND n.branch_id = :branch_id
              AND n.name = :name
              AND n.commit_id > o.commit_id
        ) AS next_commit
        FROM hf.cell_versions AS o
        WHERE o.namespace = :namespace
          AND o.branch_id = :branch_id
          AND o.name = :name
          AND o.commit_id < :newest_commit
    ) AS r
    WHERE NOT (r.hidden AND seen)
    ORDER BY r.commit_id
    LIMIT :slice
) AS v
WHERE v.hidden
   OR v.version <= :newest_version - :versions
   OR (SELECT n.updated_at FROM hf.cell_versions AS n WHERE n.commit_id = v.next_commit) <= :cutoff

-- name: drop_version
DELETE FROM hf.cell_versions WHERE commit_id = :commit_id

-- name: hide_version
UPDATE hf.cell_versions SET hidden = 1 WHERE commit_id = :commit_id

-- name: find_position
SELECT (SELECT max(epoch) FROM hf.epochs), 0, commit_id
FROM hf.last_commit

-- name: read_changes
-- Commit ids rise with the commits: there is one writer. Looks at all namespaces, because an
-- index by namespace would cost every write a page.
WITH page (looked, seq) AS MATERIALIZED (
    SELECT count(*), max(commit_id)
    FROM (
        SELECT v.commit_id
        FROM hf.epochs AS e
        CROSS JOIN hf.cell_versions AS v
        WHERE e.epoch = :epoch
          AND v.commit_id > max(:seq, e.first_commit - 1)
          AND v.commit_id <= coalesce(e.last_commit, 9223372036854775807)
        ORDER BY v.commit_id
        LIMIT :limit
    )
)
SELECT
    e.last_commit IS NOT NULL, p.looked, 0, p.seq, 0,
    0, v.commit_id, v.name, v.value, v.version, v.updated_at
FROM hf.epochs AS e
CROSS JOIN page AS p
LEFT JOIN hf.cell_versions AS v
  ON v.commit_id > max(:seq, e.first_commit - 1)
 AND v.commit_id <= p.seq
 AND v.namespace = :namespace
 AND v.branch_id = :branch_id
 AND v.name >= :first
 AND v.name < :end
 AND NOT v.hidden
WHERE e.epoch = :epoch
ORDER BY v.commit_id

-- name: get_states
-- Cells as one sees them who stands on a branch at a commit; what never was is left out.
WITH RECURSIVE walk (name, branch_id, found) AS (
    SELECT j.value, :branch_id, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = :branch_id
          AND v.name = j.value
          AND v.commit_id <= :upto
    )
    FROM json_each(:names) AS j
    UNION ALL
    SELECT w.name, b.parent_id, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = b.parent_id
          AND v.name = w.name
          AND v.commit_id <= b.fork_commit
    )
    FROM walk AS w
    JOIN hf.branches AS b ON b.id = w.branch_id
    WHERE w.found IS NULL
)
SELECT
    w.name, v.value, v.version, CASE WHEN w.branch_id = :branch_id THEN v.commit_id ELSE 0 END,
    v.updated_at, v.commit_id, v.commit_id > :since_seq AND w.branch_id = :branch_id
FROM walk AS w
JOIN hf.cell_versions AS v ON v.commit_id = w.found

-- name: written_since
-- The newest first: who has just begun to listen need not be told of all that ever was.
SELECT namespace, max(commit_id), sum(count(*)) OVER ()
FROM (
    SELECT namespace, commit_id
    FROM hf.cell_versions
    WHERE commit_id > :seq
    ORDER BY commit_id DESC
    LIMIT :most
)
GROUP BY namespace
