-- Branches on PostgreSQL: what changes them are functions, see migrations/0002_branches.sql.

-- name: fork_branch
SELECT outcome, name, parent, fork_commit, created_at
FROM hf.fork_branch(:namespace, :name, :source, :op_id::uuid, :most_levels::bigint)

-- name: delete_branch
SELECT hf.delete_branch(:namespace, :name, :op_id::uuid)

-- name: purge_branches
SELECT hf.purge_branches(:namespace, :limit::bigint)

-- name: begin_merge
SELECT source_id, target_id, source_commit, done
FROM hf.begin_merge(:namespace, :source, :target, :op_id::uuid)

-- name: end_merge
SELECT hf.end_merge(
    :namespace, :source_id::bigint, :target_id::bigint, :source_commit::bigint, :op_id::uuid,
    :names::text[], :seen::bigint[], :write::boolean[], :values::text[],
    :new_versions::bigint[], :versions::bigint, :age_us::bigint
)

-- name: list_merged
-- What a merge wrote to its target, all under its operation id.
SELECT name, version, value IS NULL
FROM hf.cell_versions
WHERE op_id = :op_id::uuid
  AND namespace = :namespace
  AND branch_id = :branch_id
ORDER BY name

-- name: get_states
-- Cells as one sees them who stands on a branch at a commit; what never was is left out.
WITH RECURSIVE walk (name, branch_id, found) AS (
    SELECT j.name, :branch_id::bigint, (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = :branch_id::bigint
          AND v.name = j.name
          AND v.commit_id <= :upto::bigint
    )
    FROM unnest(:names::text[]) AS j (name)
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
    w.name, v.value, v.version,
    CASE WHEN w.branch_id = :branch_id::bigint THEN v.commit_id ELSE 0 END,
    v.updated_at, v.commit_id
FROM walk AS w
CROSS JOIN LATERAL (
    SELECT o.value, o.version, o.updated_at, o.commit_id
    FROM hf.cell_versions AS o
    WHERE o.namespace = :namespace
      AND o.branch_id = w.branch_id
      AND o.name = w.name
      AND o.commit_id = w.found
    LIMIT 1
) AS v
