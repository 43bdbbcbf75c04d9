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
