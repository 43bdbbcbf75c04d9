-- Records on PostgreSQL: one statement per batch; what it runs is in migrations/.
--
-- After put(a, {x: 1}), put(b, {x: 2}, ttl=60), set_field(a, x, 3), delete(b):
--
--   records         ('a', {"x": "3"}, NULL, commit 12)  ('b', NULL, tomorrow, commit 13)
--   record_changes  (10, 'a')  (11, 'b')  (12, 'a')  (13, 'b')
--
-- Of the log the last two count. Times in results are what is left by the store's clock.

-- name: get_records
-- LATERAL with a LIMIT is looked up one by one, by the whole key; see get_cells.
SELECT r.fields::text, r.expires_at - c.now
FROM unnest(:namespaces::text[], :keys::text[]) WITH ORDINALITY AS i (namespace, key, item)
CROSS JOIN (SELECT hf.now_us() AS now) AS c
LEFT JOIN LATERAL (
    SELECT o.fields, o.expires_at
    FROM hf.records AS o
    WHERE o.namespace = i.namespace
      AND o.key = i.key
    LIMIT 1
) AS r ON true
ORDER BY i.item

-- name: list_records
-- Also those that are absent: a page is so many rows looked at.
SELECT
    r.key, r.fields::text, r.expires_at - c.now, r.commit_id,
    (r.feed_xid, r.commit_id) > (:since_xid::text::xid8, :since_seq::bigint)
        -- Another cluster's transactions may have larger ids.
        AND r.commit_id >= coalesce((
            SELECT e.first_commit
            FROM hf.epochs AS e
            WHERE e.epoch = :since_epoch::bigint
        ), 0)
FROM (
    SELECT o.key, o.fields, o.expires_at, o.commit_id, o.feed_xid
    FROM hf.records AS o
    WHERE o.namespace = :namespace
      AND o.key >= :first
      AND o.key < :end
    ORDER BY o.key
    LIMIT :limit
) AS r
CROSS JOIN (SELECT hf.now_us() AS now) AS c
ORDER BY r.key

-- name: put_record
-- A put needs nothing of what was there, unless an index has its entries: then nothing is written
-- and the answer is false. An index is made under a lock that keeps writers out, and a statement
-- has its locks before it looks; a transaction above READ COMMITTED may have looked before.
WITH way AS MATERIALIZED (
    SELECT
        hf.now_us() AS now,
        current_setting('transaction_isolation') = 'read committed' AND NOT EXISTS (
            SELECT 1
            FROM hf.record_indexes AS x
            WHERE x.namespace = :namespace
        ) AS free
),
put AS (
    INSERT INTO hf.records AS r
        (namespace, key, fields, expires_at, updated_at, commit_id, feed_xid, op_id)
    SELECT
        :namespace, :key, :set::jsonb, w.now + nullif(:ttl_us::bigint, 0), w.now,
        nextval('hf.commit_ids'), pg_current_xact_id(), :op_id::uuid
    FROM way AS w
    WHERE w.free
    ON CONFLICT (namespace, key) DO UPDATE
    SET fields = excluded.fields, expires_at = excluded.expires_at,
        updated_at = excluded.updated_at, commit_id = excluded.commit_id,
        feed_xid = excluded.feed_xid, op_id = excluded.op_id
    WHERE r.op_id <> excluded.op_id
    RETURNING r.feed_xid, r.commit_id, r.updated_at
),
log AS (
    INSERT INTO hf.record_changes (namespace, feed_xid, commit_id, key, changed_at)
    SELECT :namespace, p.feed_xid, p.commit_id, :key, p.updated_at
    FROM put AS p
)
SELECT w.free
FROM way AS w

-- name: put_records
-- The same for many, each another record. Rows are locked in key order: see write_records.
WITH way AS MATERIALIZED (
    SELECT
        hf.now_us() AS now,
        current_setting('transaction_isolation') = 'read committed' AND NOT EXISTS (
            SELECT 1
            FROM hf.record_indexes AS x
            WHERE x.namespace = ANY (:namespaces::text[])
        ) AS free
),
put AS (
    INSERT INTO hf.records AS r
        (namespace, key, fields, expires_at, updated_at, commit_id, feed_xid, op_id)
    SELECT
        i.namespace, i.key, i.set, w.now + nullif(i.ttl_us, 0), w.now,
        nextval('hf.commit_ids'), pg_current_xact_id(), i.op_id
    FROM way AS w
    CROSS JOIN unnest(
        :namespaces::text[], :keys::text[], :set::jsonb[], :ttl_us::bigint[], :op_ids::uuid[]
    ) AS i (namespace, key, set, ttl_us, op_id)
    WHERE w.free
    ORDER BY i.namespace COLLATE "C", i.key COLLATE "C"
    ON CONFLICT (namespace, key) DO UPDATE
    SET fields = excluded.fields, expires_at = excluded.expires_at,
        updated_at = excluded.updated_at, commit_id = excluded.commit_id,
        feed_xid = excluded.feed_xid, op_id = excluded.op_id
    WHERE r.op_id <> excluded.op_id
    RETURNING r.namespace, r.feed_xid, r.commit_id, r.key, r.updated_at
),
log AS (
    INSERT INTO hf.record_changes (namespace, feed_xid, commit_id, key, changed_at)
    SELECT p.namespace, p.feed_xid, p.commit_id, p.key, p.updated_at
    FROM put AS p
)
SELECT w.free
FROM way AS w

-- name: write_record
SELECT hf.write_record(
    :namespace, :key, :expect::jsonb, :set::jsonb, :stamps::jsonb, :replace::boolean,
    :must_exist::boolean, :ttl_us::bigint, :op_id::uuid, :asked_ago_us::bigint, NULL
)

-- name: write_records
-- Answers are matched to items by their place in the batch.
SELECT applied
FROM hf.write_records(
    :namespaces::text[], :keys::text[], :expect::jsonb[], :set::jsonb[], :stamps::jsonb[],
    :replace::boolean[], :must_exist::boolean[], :ttl_us::bigint[], :op_ids::uuid[],
    :asked_ago_us::bigint[]
)
ORDER BY item

-- name: purge_records
SELECT gone, cut
FROM hf.purge_records(:limit::bigint)

-- name: list_indexes
SELECT id, namespace, prefix, array_to_json(fields)::text, filled_upto
FROM hf.record_indexes
ORDER BY id

-- name: create_index
SELECT hf.create_record_index(:namespace, :prefix, :fields::text[])

-- name: fill_index
SELECT hf.fill_record_index(:namespace, :prefix, :end, :fields::text[], :limit::bigint)

-- name: drop_index
SELECT hf.drop_record_index(:namespace, :prefix, :fields::text[])

-- name: drop_entries
WITH gone AS (
    DELETE FROM hf.record_index_entries
    WHERE index_id = :id::bigint
    RETURNING 1
)
SELECT count(*)
FROM gone

-- name: find_records
SELECT r.key, r.fields::text, r.expires_at - c.now
FROM (
    SELECT e.sort, e.key
    FROM hf.record_index_entries AS e
    WHERE e.index_id = :id::bigint
      AND e.lead = :lead
      AND e.sort >= :low
      AND e.sort <= :high
      AND e.key >= :first
      AND e.key < :end
    ORDER BY e.sort, e.key
    LIMIT :limit
) AS f
CROSS JOIN (SELECT hf.now_us() AS now) AS c
CROSS JOIN LATERAL (
    SELECT o.key, o.fields, o.expires_at
    FROM hf.records AS o
    WHERE o.namespace = :namespace
      AND o.key = f.key
    LIMIT 1
) AS r
ORDER BY f.sort, f.key

-- name: is_lost
-- A floor of a later epoch: what was older went before.
SELECT EXISTS (
    SELECT 1
    FROM hf.record_floors AS f
    JOIN hf.epochs AS e ON e.epoch = :epoch::bigint
    WHERE f.namespace = :namespace
      AND f.commit_id >= e.first_commit
      AND (
          f.commit_id > e.last_commit
          OR (f.feed_xid, f.commit_id) > (:xid::text::xid8, :seq::bigint)
      )
)

-- name: read_changes
-- Below the oldest transaction that is still open nothing can appear any more. In an epoch that
-- is over there is none. Entries that no longer count are looked at too.
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
        SELECT v.feed_xid, v.commit_id, v.key
        FROM hf.record_changes AS v
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
        FROM hf.record_changes AS v
        WHERE v.namespace = :namespace
          AND v.feed_xid >= e.bound
          -- Above are only those of another cluster, and they may be many.
          AND v.feed_xid < pg_snapshot_xmax(pg_current_snapshot())
          AND v.commit_id >= e.first_commit
    ) AS back
    FROM epoch AS e
),
newest AS MATERIALIZED (
    SELECT p.feed_xid, p.commit_id, r.key, r.fields, r.expires_at
    FROM page AS p
    CROSS JOIN LATERAL (
        SELECT o.key, o.fields, o.expires_at, o.commit_id
        FROM hf.records AS o
        WHERE o.namespace = :namespace
          AND o.key = p.key
        LIMIT 1
    ) AS r
    WHERE r.commit_id = p.commit_id
      AND p.key >= :first
      AND p.key < :end
)
SELECT
    e.closed, (SELECT count(*) FROM page), l.feed_xid::text::bigint, l.commit_id, h.back,
    n.feed_xid::text::bigint, n.commit_id, n.key, n.fields::text, n.expires_at - c.now
FROM epoch AS e
CROSS JOIN held AS h
CROSS JOIN (SELECT hf.now_us() AS now) AS c
LEFT JOIN LATERAL (
    SELECT o.feed_xid, o.commit_id
    FROM page AS o
    ORDER BY o.feed_xid DESC, o.commit_id DESC
    LIMIT 1
) AS l ON true
LEFT JOIN newest AS n ON true
ORDER BY n.feed_xid, n.commit_id
