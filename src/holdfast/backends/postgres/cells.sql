-- Cells on PostgreSQL: one statement per batch; what it runs is in migrations/.
--
-- `cells` says which version of each cell is the newest: the row that writers lock, in the order
-- of (namespace, branch_id, name). After set(a)=1, set(a)=2, delete(a):
--
--   cells          ('a', version 2, commit 12, deleted)
--   cell_versions  (10, 'a', version 1, '1')  (11, 'a', version 2, '2')  (12, 'a', version 2, NULL)

-- name: get_cells
-- LATERAL with a LIMIT is looked up one by one, by the whole key. A plain join is the planner's
-- to turn around: on a young table without statistics it read every cell for every call, and
-- every version of the cell.
SELECT v.value, v.version, v.updated_at, v.commit_id
FROM unnest(:namespaces::text[], :names::text[]) WITH ORDINALITY AS i (namespace, name, item)
LEFT JOIN LATERAL (
    SELECT h.namespace, h.branch_id, h.name, h.commit_id
    FROM hf.cells AS h
    WHERE h.namespace = i.namespace
      AND h.branch_id = 0
      AND h.name = i.name
      AND NOT h.deleted
    LIMIT 1
) AS c ON true
LEFT JOIN LATERAL (
    SELECT o.value, o.version, o.updated_at, o.commit_id
    FROM hf.cell_versions AS o
    WHERE o.namespace = c.namespace
      AND o.branch_id = c.branch_id
      AND o.name = c.name
      AND o.commit_id = c.commit_id
    LIMIT 1
) AS v ON true
ORDER BY i.item

-- name: get_branch_cell
-- From level to level until there is a version; a tombstone is one. No row: no such branch.
-- LATERAL as in get_cells: as a plain join it read every version of the cell.
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
FROM (
    SELECT branch_id, found
    FROM walk
    ORDER BY found IS NULL
    LIMIT 1
) AS w
LEFT JOIN LATERAL (
    SELECT o.value, o.version, o.updated_at, o.commit_id
    FROM hf.cell_versions AS o
    WHERE o.namespace = :namespace
      AND o.branch_id = w.branch_id
      AND o.name = :name
      AND o.commit_id = w.found
    LIMIT 1
) AS v ON true

-- name: list_names
SELECT name, deleted
FROM hf.cells
WHERE namespace = :namespace
  AND branch_id = :branch_id::bigint
  AND name >= :first
  AND name < :end
ORDER BY name
LIMIT :limit

-- name: list_names_upto
-- The same for who looks from another branch. NULL instead of "deleted": no such cell by then.
SELECT c.name, v.deleted
FROM (
    SELECT h.name
    FROM hf.cells AS h
    WHERE h.namespace = :namespace
      AND h.branch_id = :branch_id::bigint
      AND h.name >= :first
      AND h.name < :end
    ORDER BY h.name
    LIMIT :limit
) AS c
LEFT JOIN LATERAL (
    SELECT o.value IS NULL AS deleted
    FROM hf.cell_versions AS o
    WHERE o.namespace = :namespace
      AND o.branch_id = :branch_id::bigint
      AND o.name = c.name
      AND o.commit_id <= :upto::bigint
    ORDER BY o.commit_id DESC
    LIMIT 1
) AS v ON true
ORDER BY c.name

-- name: write_cell
SELECT hf.write_cell(
    :namespace, :branch, :name, :expected::bigint, :value::text, :op_id::uuid,
    :look_up::boolean, :repeat::boolean, :versions::bigint, :age_us::bigint, NULL
)

-- name: write_cells
-- Answers are matched to items by their place in the batch.
SELECT outcome
FROM hf.write_cells(
    :namespaces::text[], :branches::text[], :names::text[], :expected::bigint[], :values::text[],
    :op_ids::uuid[], :look_up::boolean, :repeat::boolean, :versions::bigint, :age_us::bigint
)
ORDER BY item

-- name: prune_cells
SELECT hf.prune_cells(
    :namespace, :branch, :first, :last, :slice::bigint, :versions::bigint, :age_us::bigint
)
