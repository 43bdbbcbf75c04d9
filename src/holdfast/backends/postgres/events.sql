-- Events on PostgreSQL. See migrations/0006_events.sql for the functions.

-- name: append_new
SELECT hf.append_new(
    :namespaces, :run_ids, :expected, :keys, :event_ids, :types, :emitted, :data, :more
)

-- name: append_events
-- Whatever is known or elsewhere than expected: run by run, under its lock.
SELECT a.call, (a.answer).*
FROM hf.append_events(
    :calls, :namespaces, :run_ids, :expected, :keys, :event_ids, :types, :emitted, :data, :more
) AS a

-- name: delete_run
-- The run is locked first: it stays as it was seen, and a later one of its name is not touched.
WITH seen AS MATERIALIZED (
    SELECT r.run_id, r.last_seq
    FROM hf.runs AS r
    WHERE r.namespace = :namespace
      AND r.run_id = :run_id
      AND NOT r.gone
      AND r.id = :generation::bigint
    FOR UPDATE
)
SELECT CASE
    WHEN NOT EXISTS (SELECT 1 FROM seen AS s WHERE s.last_seq <> :last_seq::bigint)
    THEN hf.delete_run(:namespace, (SELECT s.run_id FROM seen AS s), :limit)
END

-- name: fetch_events
SELECT
    r.run_id, e.run_seq, e.key, uuid_send(e.event_id), e.event_type,
    e.emitted_at, e.persisted_at, e.data, e.more
FROM hf.runs AS r
JOIN hf.events AS e ON e.run = r.id
WHERE r.namespace = :namespace
  AND r.run_id = :run_id
  AND NOT r.gone
  AND :generation::bigint IN (0, r.id)
  AND e.run_seq > :after
ORDER BY e.run_seq
LIMIT :limit

-- name: list_runs
SELECT run_id
FROM hf.runs
WHERE namespace = :namespace
  AND NOT gone
  AND last_seq > 0
  AND run_id >= :first
ORDER BY run_id
LIMIT :limit

-- name: get_state
SELECT r.id, r.last_seq, s.last_seq, s.payload
FROM hf.runs AS r
LEFT JOIN hf.run_views AS s ON s.run = r.id AND s.view = :view
WHERE r.namespace = :namespace
  AND r.run_id = :run_id
  AND NOT r.gone
  AND r.last_seq > 0

-- name: put_view
WITH kept AS (
    SELECT r.id
    FROM hf.runs AS r
    WHERE r.namespace = :namespace
      AND r.run_id = :run_id
      AND NOT r.gone
      AND r.id = :generation::bigint
    FOR SHARE
),
put AS (
    INSERT INTO hf.run_views AS s (run, view, last_seq, payload)
    SELECT k.id, :view, :last_seq, :payload
    FROM kept AS k
    ON CONFLICT (run, view) DO UPDATE SET last_seq = excluded.last_seq, payload = excluded.payload
    WHERE excluded.last_seq >= s.last_seq
)
SELECT count(*) FROM kept

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
        SELECT v.*
        FROM hf.events AS v
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
        FROM hf.events AS v
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
    n.feed_xid::text::bigint, n.commit_id,
    n.run_id, n.run_seq, n.key, uuid_send(n.event_id), n.event_type,
    n.emitted_at, n.persisted_at, n.data, n.more
FROM epoch AS e
CROSS JOIN held AS h
LEFT JOIN LATERAL (
    SELECT o.feed_xid, o.commit_id
    FROM page AS o
    ORDER BY o.feed_xid DESC, o.commit_id DESC
    LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT p.*, r.run_id
    FROM page AS p
    JOIN hf.runs AS r ON r.id = p.run AND NOT r.gone
) AS n ON true
ORDER BY n.feed_xid, n.commit_id
