-- Cells on PostgreSQL: one statement per batch; what it runs is in migrations/.

-- name: get_cells
-- LATERAL with a LIMIT is looked up cell by cell. A plain join is the planner's to turn
-- around: on a young table without statistics it read every cell for every call.
SELECT f.value, f.version, f.updated_at, f.commit_id
FROM unnest(:namespaces::text[], :names::text[]) WITH ORDINALITY AS i (namespace, name, item)
LEFT JOIN LATERAL (
    SELECT v.value, v.version, v.updated_at, v.commit_id
    FROM hf.cells AS c
    JOIN hf.cell_versions AS v
      ON v.namespace = c.namespace
      AND v.branch_id = c.branch_id
      AND v.name = c.name
      AND v.commit_id = c.commit_id
    WHERE c.namespace = i.namespace
      AND c.branch_id = 0
      AND c.name = i.name
      AND NOT c.deleted
    LIMIT 1
) AS f ON true
ORDER BY i.item

-- name: write_cell
SELECT applied, version
FROM hf.write_cell(
    :namespace, :name, :expected::bigint, :value::text, :op_id::uuid,
    :look_up::boolean, :versions::bigint, :age_us::bigint
)

-- name: write_cells
-- Answers are matched to items by their place in the batch.
SELECT applied, version
FROM hf.write_cells(
    :namespaces::text[], :names::text[], :expected::bigint[], :values::text[],
    :op_ids::uuid[], :look_up::boolean, :versions::bigint, :age_us::bigint
)
ORDER BY item

-- name: trim_cells
SELECT hf.trim_cells(
    :namespace, :first, :last, :slice::bigint, :versions::bigint,
    CASE WHEN :age_us::bigint IS NULL THEN -1 ELSE hf.now_us() - :age_us::bigint END
)
