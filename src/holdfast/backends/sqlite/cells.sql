-- Cells on SQLite. No row locks: BEGIN IMMEDIATE holds the one writer.

-- name: get_cell
SELECT v.value, v.version, v.updated_at, v.commit_id
FROM hf.cells AS c
JOIN hf.cell_versions AS v ON v.commit_id = c.commit_id
WHERE c.namespace = :namespace
  AND c.branch_id = 0
  AND c.name = :name
  AND NOT c.deleted

-- name: begin_commit
-- Once per batch: the clock's offset, and the last commit id that was given out.
SELECT clock_offset_us, max(commit_floor, coalesce((SELECT max(commit_id) FROM hf.cell_versions), 0))
FROM hf.store_state

-- name: get_head
SELECT version, deleted, updated_at
FROM hf.cells
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name

-- name: find_op
SELECT version
FROM hf.cell_versions
WHERE op_id = :op_id
  AND namespace = :namespace
  AND branch_id = 0
  AND name = :name

-- name: add_version
INSERT INTO hf.cell_versions
    (commit_id, namespace, branch_id, name, version, updated_at, op_id, value)
VALUES (:commit_id, :namespace, 0, :name, :version, :updated_at, :op_id, :value)

-- name: put_head
INSERT INTO hf.cells (namespace, branch_id, name, version, commit_id, updated_at, deleted)
VALUES (:namespace, 0, :name, :version, :commit_id, :updated_at, :value IS NULL)
ON CONFLICT (namespace, branch_id, name) DO UPDATE
SET version = excluded.version,
    commit_id = excluded.commit_id,
    updated_at = excluded.updated_at,
    deleted = excluded.deleted

-- name: trim_cells
-- Looks only at the oldest few versions of each cell, so a write that trims stays cheap.
-- A version's time ends where its successor's begins: it goes when that one is old enough.
DELETE FROM hf.cell_versions
WHERE commit_id IN (
    SELECT v.commit_id
    FROM hf.cells AS c
    JOIN hf.cell_versions AS v
      ON v.commit_id IN (
        SELECT o.commit_id
        FROM hf.cell_versions AS o
        WHERE o.namespace = c.namespace
          AND o.branch_id = c.branch_id
          AND o.name = c.name
        ORDER BY o.commit_id
        LIMIT :slice
      )
    WHERE c.namespace = :namespace
      AND c.branch_id = 0
      AND c.name >= :first
      AND c.name <= :last
      AND v.commit_id < c.commit_id
      AND (
        v.version <= c.version - :versions
        OR (
            SELECT n.updated_at
            FROM hf.cell_versions AS n
            WHERE n.namespace = c.namespace
              AND n.branch_id = c.branch_id
              AND n.name = c.name
              AND n.commit_id > v.commit_id
            ORDER BY n.commit_id
            LIMIT 1
        ) <= :cutoff
      )
)
RETURNING commit_id
