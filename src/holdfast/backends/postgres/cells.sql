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

-- name: write_live_cell
-- A value for a cell that is there, on `main`, under an operation id that is new: what nearly
-- every write is, without what write_cell does for the others. It counts on nothing that was read
-- before a lock was waited for: the update looks again at the row it has locked, and the branch's
-- lock, which must be there before a commit id is drawn, is had at once or not at all. Where
-- nothing was updated, write_cell finds out why, in statements of its own.
WITH head AS (
    UPDATE hf.cells AS c
    SET version = c.version + 1,
        commit_id = nextval('hf.commit_ids'),
        updated_at = greatest(c.updated_at, hf.now_us()),
        feed_xid = greatest(c.feed_xid, pg_current_xact_id())
    WHERE c.namespace = :namespace
      AND c.branch_id = 0
      AND c.name = :name
      AND NOT c.deleted
      AND :expected::bigint IN (-1, c.version)
      AND pg_try_advisory_xact_lock_shared(hashtextextended(:namespace, 0))
    RETURNING c.version, c.commit_id, c.updated_at, c.feed_xid
),
made AS (
    INSERT INTO hf.cell_versions AS v
        (commit_id, namespace, branch_id, name, version, updated_at, op_id, feed_xid, value)
    SELECT
        h.commit_id, :namespace, 0, :name, h.version, h.updated_at, :op_id::uuid, h.feed_xid,
        :value::text
    FROM head AS h
    RETURNING v.version
)
SELECT coalesce(
    (SELECT m.version FROM made AS m),
    hf.write_cell(
        :namespace, 'main', :name, :expected::bigint, :value::text, :op_id::uuid, false, false,
        NULL, NULL, NULL
    )
)

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

-- name: find_position
SELECT max(epoch), pg_snapshot_xmin(pg_current_snapshot())::text::bigint, 0::bigint
FROM hf.epochs

-- name: find_end
-- Above every transaction that has ended, where find_position is below every one that has not.
SELECT max(epoch), pg_snapshot_xmax(pg_current_snapshot())::text::bigint, 0::bigint
FROM hf.epochs

-- name: read_changes
-- Below the oldest transaction that is still open nothing can appear any more. In an epoch that
-- is over there is none.
WITH epoch AS MATERIALIZED (
    SELECT
        e.first_commit,
        coalesce(e.last_commit, 9223372036854775807) AS last_commit,
        e.last_commit IS NOT NULL AS closed,
        CASE
            WHEN e.last_commit IS NULL THEN pg_snapshot_xmin(pg_current_snapshot())
            ELSE '18446744073709551615'::xid8
        END AS bound
    FROM hf.epochs AS e
    WHERE e.epoch = :epoch::bigint
),
page AS MATERIALIZED (
    SELECT c.*
    FROM epoch AS e
    CROSS JOIN LATERAL (
        SELECT
            v.feed_xid, v.commit_id, v.branch_id, v.name, v.value, v.version, v.updated_at,
            v.hidden
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND (v.feed_xid, v.commit_id) > (:xid::text::xid8, :seq::bigint)
          AND v.feed_xid < e.bound
          AND v.commit_id >= e.first_commit
          AND v.commit_id <= e.last_commit
        ORDER BY v.feed_xid, v.commit_id
        LIMIT :limit
    ) AS c
),
-- Once, and not for every row of the page: an open transaction may have written much.
held AS MATERIALIZED (
    SELECT NOT e.closed AND EXISTS (
        SELECT 1
        FROM hf.cell_versions AS v
        WHERE v.namespace = :namespace
          AND v.feed_xid >= e.bound
          -- Above are only those of another cluster, and they may be many.
          AND v.feed_xid < pg_snapshot_xmax(pg_current_snapshot())
          AND v.commit_id >= e.first_commit
    ) AS back
    FROM epoch AS e
)
SELECT
    e.closed, (SELECT count(*) FROM page), l.feed_xid::text::bigint, l.commit_id, h.back,
    p.feed_xid::text::bigint, p.commit_id, p.name, p.value, p.version, p.updated_at
FROM epoch AS e
CROSS JOIN held AS h
LEFT JOIN LATERAL (
    SELECT c.feed_xid, c.commit_id
    FROM page AS c
    ORDER BY c.feed_xid DESC, c.commit_id DESC
    LIMIT 1
) AS l ON true
LEFT JOIN page AS p
  ON p.branch_id = :branch_id::bigint
 AND p.name >= :first
 AND p.name < :end
 AND NOT p.hidden
ORDER BY p.feed_xid, p.commit_id

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
    v.updated_at, v.commit_id,
    w.branch_id = :branch_id::bigint
        AND (v.feed_xid, v.commit_id) > (:since_xid::text::xid8, :since_seq::bigint)
        -- Another cluster's transactions may have larger ids.
        AND v.commit_id >= (
            SELECT e.first_commit
            FROM hf.epochs AS e
            WHERE e.epoch = :since_epoch::bigint
        )
FROM walk AS w
CROSS JOIN LATERAL (
    SELECT o.value, o.version, o.updated_at, o.commit_id, o.feed_xid
    FROM hf.cell_versions AS o
    WHERE o.namespace = :namespace
      AND o.branch_id = w.branch_id
      AND o.name = w.name
      AND o.commit_id = w.found
    LIMIT 1
) AS v
