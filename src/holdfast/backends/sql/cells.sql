-- Reading cells on SQL. `cell_versions` keeps every version; NULL as a value is a tombstone.
-- Which version is the newest is each engine's own business.
--
-- Each reads one branch; `main` is id 0. Who looks from a branch that was forked from it sees its
-- versions up to :upto. A `hidden` version is one that retention has dropped, kept because it is
-- the last that somebody sees.

-- name: get_cell_at
-- The last version with updated_at <= :at, by halving: within a cell updated_at rises with
-- commit_id. Versions up to `low` are old enough, those above `high` are too young.
-- A hidden version's time is over, except for whom it is the last one.
WITH RECURSIVE search (low, high) AS (
    SELECT CAST(0 AS bigint), (
        SELECT max(v.commit_id)
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.branch_id = :branch_id
          AND v.name = :name
          AND v.commit_id <= :upto
    )
    UNION ALL
    SELECT
        CASE WHEN v.updated_at <= :at THEN v.commit_id ELSE s.low END,
        CASE WHEN v.updated_at <= :at THEN s.high ELSE (s.low + s.high) / 2 END
    FROM search AS s
    LEFT JOIN hf.cell_versions AS v
      ON v.namespace = :namespace
     AND v.branch_id = :branch_id
     AND v.name = :name
     AND v.commit_id = (
        SELECT min(m.commit_id)
        FROM hf.cell_versions AS m
        WHERE m.namespace = :namespace
          AND m.branch_id = :branch_id
          AND m.name = :name
          AND m.commit_id > (s.low + s.high) / 2
     )
    WHERE s.low < s.high
)
SELECT
    CASE WHEN hidden AND commit_id < (SELECT max(high) FROM search) THEN NULL ELSE value END,
    version, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = :branch_id
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
  AND NOT hidden
ORDER BY commit_id DESC
LIMIT :limit

-- name: list_level_versions
-- For a branch that reads through others: what is hidden or a tombstone is the caller's to judge.
SELECT value, version, updated_at, commit_id, hidden
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = :branch_id
  AND name = :name
  AND commit_id <= :upto
ORDER BY commit_id DESC
LIMIT :limit
