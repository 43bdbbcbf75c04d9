-- Sessions on PostgreSQL: a commit is one function, see migrations/0003_sessions.sql.

-- name: commit_session
SELECT outcome, cells
FROM hf.commit_session(
    :namespace, :branch, :branch_id::bigint, :exclusive::boolean, :op_id::uuid,
    :look_up::boolean, :names::text[], :seen::bigint[], :write::boolean[], :values::text[],
    :new_versions::bigint[], :firsts::text[], :ends::text[], :found::text[],
    :found_in::bigint[], :versions::bigint, :age_us::bigint
)
