-- What a branch sees: its own versions, and behind them its parent's up to the fork commit, and
-- so on. (parent_id, fork_commit) of a branch never changes. `main` is id 0 and has no row, so a
-- walk ends there by itself. After fork(a) at commit 10 and fork(b, source=a) at commit 20:
--
--   branches  (1, 'a', parent 0, fork_commit 10)  (2, 'b', parent 1, fork_commit 20)
--
-- `merges` has a row for the last merge of two branches, and one for a merge that is under way.

-- name: find_lineage
WITH RECURSIVE lineage (level, branch_id, upto) AS (
    SELECT 0, b.id, CAST(:everything AS bigint)
    FROM hf.branches AS b
    WHERE b.namespace = :namespace
      AND b.name = :branch
      AND b.deleted_at IS NULL
    UNION ALL
    SELECT l.level + 1, b.parent_id, b.fork_commit
    FROM lineage AS l
    JOIN hf.branches AS b ON b.id = l.branch_id
)
SELECT branch_id, upto
FROM lineage
ORDER BY level

-- name: find_lineage_of
-- What one saw who stood on that branch at that commit.
WITH RECURSIVE lineage (level, branch_id, upto) AS (
    SELECT 0, CAST(:branch_id AS bigint), CAST(:upto AS bigint)
    UNION ALL
    SELECT l.level + 1, b.parent_id, b.fork_commit
    FROM lineage AS l
    JOIN hf.branches AS b ON b.id = l.branch_id
)
SELECT branch_id, upto
FROM lineage
ORDER BY level

-- name: list_branches
SELECT b.name, coalesce(p.name, 'main'), b.fork_commit, b.created_at
FROM hf.branches AS b
LEFT JOIN hf.branches AS p ON p.id = b.parent_id
WHERE b.namespace = :namespace
  AND b.name > :after
  AND b.deleted_at IS NULL
ORDER BY b.name
LIMIT :limit

-- name: find_merge
-- The base of two branches: the source of their last merge, as it was then.
SELECT source_id, source_commit
FROM hf.merges
WHERE namespace = :namespace
  AND low_id = :low
  AND high_id = :high
  AND done = 1
