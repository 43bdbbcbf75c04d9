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
-- From name to name: a plain scan would read every version of every cell.
WITH RECURSIVE found (name) AS (
    SELECT min(v.name)
    FROM hf.cell_versions AS v
    WHERE v.namespace = :namespace
      AND v.branch_id = 0
      AND v.name >= :first
    UNION ALL
    SELECT (
        SELECT min(v.name)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = 0
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
      AND v.branch_id = 0
      AND v.name = f.name
    ORDER BY v.commit_id DESC
    LIMIT 1
)
FROM found AS f
WHERE f.name < :end

-- name: begin_commit
-- Once per batch: the clock's offset, and the last commit id that was given out.
SELECT clock_offset_us, max(commit_floor, coalesce((SELECT max(commit_id) FROM hf.cell_versions), 0))
FROM hf.store_state

-- name: get_newest
SELECT version, deleted, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name
ORDER BY commit_id DESC
LIMIT 1

-- name: find_op
SELECT version
FROM hf.cell_versions
WHERE op_given
  AND op_id = :op_id
  AND namespace = :namespace
  AND branch_id = 0
  AND name = :name

-- name: find_own_op
-- An id of the store's own has no index. It is looked for after a failed commit, so it is
-- among the cell's newest if anywhere.
SELECT version
FROM hf.cell_versions
WHERE op_id = :op_id
  AND namespace = :namespace
  AND branch_id = 0
  AND name = :name
ORDER BY commit_id DESC
LIMIT 1

-- name: add_version
INSERT INTO hf.cell_versions
    (commit_id, namespace, branch_id, name, version, updated_at, op_id, op_given, value)
VALUES (:commit_id, :namespace, 0, :name, :version, :updated_at, :op_id, :op_given, :value)

-- name: trim_cell
-- Looks only at the oldest few versions of the cell, so a write that trims stays cheap.
-- A version's time ends where its successor's begins: it goes when that one is old enough.
DELETE FROM hf.cell_versions
WHERE commit_id IN (
    SELECT v.commit_id
    FROM (
        SELECT o.commit_id, o.version
        FROM hf.cell_versions AS o
        WHERE o.namespace = :namespace
          AND o.branch_id = 0
          AND o.name = :name
        ORDER BY o.commit_id
        LIMIT :slice
    ) AS v
    WHERE v.commit_id < :newest_commit
      AND (
        v.version <= :newest_version - :versions
        OR (
            SELECT n.updated_at
            FROM hf.cell_versions AS n
            WHERE n.namespace = :namespace
              AND n.branch_id = 0
              AND n.name = :name
              AND n.commit_id > v.commit_id
            ORDER BY n.commit_id
            LIMIT 1
        ) <= :cutoff
      )
)
RETURNING commit_id
