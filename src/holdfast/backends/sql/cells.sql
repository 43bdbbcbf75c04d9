-- Reading cells on SQL. `cell_versions` keeps every version; NULL as a value is a tombstone.
-- Which version is the newest is each engine's own business.

-- name: get_cell_at
-- The last version with updated_at <= :at, by halving: within a cell updated_at rises with
-- commit_id. Versions up to `low` are old enough, those above `high` are too young.
WITH RECURSIVE search (low, high) AS (
    SELECT CAST(0 AS bigint), (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = 0
          AND v.name = :name
    )
    UNION ALL
    SELECT
        CASE WHEN v.updated_at <= :at THEN v.commit_id ELSE s.low END,
        CASE WHEN v.updated_at <= :at THEN s.high ELSE (s.low + s.high) / 2 END
    FROM search AS s
    LEFT JOIN hf.cell_versions AS v
      ON v.namespace = :namespace
     AND v.branch_id = 0
     AND v.name = :name
     AND v.commit_id = (
        SELECT min(m.commit_id)
        FROM hf.cell_versions AS m
        WHERE m.namespace = :namespace
          AND m.branch_id = 0
          AND m.name = :name
          AND m.commit_id > (s.low + s.high) / 2
     )
    WHERE s.low < s.high
)
SELECT value, version, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name
  AND commit_id = (SELECT max(low) FROM search)

-- name: list_versions
SELECT value, version, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name
  AND commit_id < :before
  AND value IS NOT NULL
ORDER BY commit_id DESC
LIMIT :limit
