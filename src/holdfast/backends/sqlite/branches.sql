-- Branches on SQLite: the one writer decides, so every commit id below the last is committed.

-- name: find_fork
SELECT b.name, coalesce(p.name, 'main'), b.fork_commit, b.created_at
FROM hf.branches AS b
LEFT JOIN hf.branches AS p ON p.id = b.parent_id
WHERE b.namespace = :namespace
  AND b.op_id = :op_id

-- name: count_levels
WITH RECURSIVE lineage (branch_id) AS (
    SELECT :branch_id
    UNION ALL
    SELECT b.parent_id
    FROM lineage AS l
    JOIN hf.branches AS b ON b.id = l.branch_id
)
SELECT count(*) FROM lineage

-- name: add_branch
INSERT INTO hf.branches (namespace, name, parent_id, fork_commit, created_at, op_id)
VALUES (:namespace, :name, :parent_id, :fork_commit, :created_at, :op_id)

-- name: mark_deleted
UPDATE hf.branches SET deleted_at = :now, deleted_op = :op_id WHERE id = :branch_id

-- name: find_delete
SELECT EXISTS (
    SELECT 1
    FROM hf.branches
    WHERE namespace = :namespace
      AND name = :name
      AND deleted_op = :op_id
)

-- name: drop_merges
DELETE FROM hf.merges
WHERE namespace = :namespace
  AND (low_id = :branch_id OR high_id = :branch_id)

-- name: find_purgeable
-- A deleted branch whose children are all gone.
SELECT b.id
FROM hf.branches AS b
WHERE b.namespace = :namespace
  AND b.deleted_at IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM hf.branches AS c
    WHERE c.namespace = :namespace
      AND c.parent_id = b.id
  )
ORDER BY b.id
LIMIT 1

-- name: raise_floor
-- The newest version of the store may be among those that go: its commit id must not come again.
UPDATE hf.store_state SET commit_floor = :commit_id

-- name: purge_versions
DELETE FROM hf.cell_versions
WHERE commit_id IN (
    SELECT commit_id
    FROM hf.cell_versions
    WHERE namespace = :namespace
      AND branch_id = :branch_id
    LIMIT :limit
)
RETURNING commit_id

-- name: drop_branch
DELETE FROM hf.branches WHERE id = :branch_id

-- name: find_merge
SELECT source_commit, op_id
FROM hf.merges
WHERE namespace = :namespace
  AND low_id = :low
  AND high_id = :high
  AND done = :done

-- name: begin_merge
INSERT INTO hf.merges (namespace, low_id, high_id, done, source_id, source_commit, op_id)
VALUES (:namespace, :low, :high, 0, :source_id, :source_commit, :op_id)
ON CONFLICT DO UPDATE
SET source_id = excluded.source_id,
    source_commit = excluded.source_commit,
    op_id = excluded.op_id

-- name: forget_merge
DELETE FROM hf.merges
WHERE namespace = :namespace
  AND low_id = :low
  AND high_id = :high
  AND done = 1

-- name: end_merge
UPDATE hf.merges SET done = 1
WHERE namespace = :namespace
  AND low_id = :low
  AND high_id = :high
  AND done = 0

-- name: list_merged
-- What a merge wrote to its target, all under its operation id.
SELECT name, version, deleted
FROM hf.cell_versions
WHERE op_given
  AND op_id = :op_id
  AND namespace = :namespace
  AND branch_id = :branch_id
ORDER BY name

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
    v.updated_at, v.commit_id
FROM walk AS w
JOIN hf.cell_versions AS v ON v.commit_id = w.found
