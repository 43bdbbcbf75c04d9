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

-- name: list_names
SELECT name, deleted
FROM hf.cells
WHERE namespace = :namespace
  AND branch_id = 0
  AND name >= :first
  AND name < :end
ORDER BY name
LIMIT :limit

-- name: write_cell
SELECT hf.write_cell(
    :namespace, :name, :expected::bigint, :value::text, :op_id::uuid,
    :look_up::boolean, :repeat::boolean, :versions::bigint, :age_us::bigint, NULL
)

-- name: write_cells
-- Answers are matched to items by their place in the batch.
SELECT outcome
FROM hf.write_cells(
    :namespaces::text[], :names::text[], :expected::bigint[], :values::text[],
    :op_ids::uuid[], :look_up::boolean, :repeat::boolean, :versions::bigint, :age_us::bigint
)
ORDER BY item

-- name: trim_cells
-- The cells are locked first, in key order like everywhere: trimming races with writers.
SELECT hf.trim_cells(
    :namespace, :first, :last, :slice::bigint, :versions::bigint,
    CASE WHEN :age_us::bigint IS NULL THEN -1 ELSE hf.now_us() - :age_us::bigint END
)
FROM (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM hf.cells AS c
        WHERE c.namespace = :namespace
          AND c.branch_id = 0
          AND c.name >= :first
          AND c.name <= :last
        ORDER BY c.name
        FOR NO KEY UPDATE
    ) AS locked
) AS all_locked
