-- Cells on SQL: `cells` says which version of each cell is the newest, `cell_versions`
-- keeps every version. After set(a)=1, set(a)=2, delete(a):
--
--   cells          (ns, 0, 'a', version 2, commit 12, deleted)
--   cell_versions  (10, 'a', version 1, '1')  (11, 'a', version 2, '2')  (12, 'a', version 2, NULL)
--
-- Lock order: cells by (namespace, branch_id, name).

-- name: get_cell_at
-- updated_at rises with commit_id within a cell, and the index covers it.
SELECT value, version, updated_at, commit_id
FROM hf.cell_versions
WHERE namespace = :namespace
  AND branch_id = 0
  AND name = :name
  AND updated_at <= :at
ORDER BY commit_id DESC
LIMIT 1

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

-- name: list_names
SELECT name
FROM hf.cells
WHERE namespace = :namespace
  AND branch_id = 0
  AND name >= :first
  AND name < :end
  AND NOT deleted
ORDER BY name
LIMIT :limit

-- name: page_of_names
-- Deleted cells too: their history is pruned like any other.
SELECT name
FROM hf.cells
WHERE namespace = :namespace
  AND branch_id = 0
  AND name >= :first
ORDER BY name
LIMIT :limit
