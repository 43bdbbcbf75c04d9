-- Events on SQLite. No row locks: BEGIN IMMEDIATE holds the one writer.
--
-- After append(a, k1), append(b, k1), append(a, k2), append(a, k1):
--
--   runs    (1, 'a')  (2, 'b')
--   events  (10, run 1, seq 1, k1)  (11, run 2, seq 1, k1)  (12, run 1, seq 2, k2)

-- name: find_run
SELECT r.id, coalesce((SELECT max(e.run_seq) FROM hf.events AS e WHERE e.run = r.id), 0)
FROM hf.runs AS r
WHERE r.namespace = :namespace
  AND r.run_id = :run_id
  AND NOT r.gone

-- name: add_run
INSERT INTO hf.runs (namespace, run_id)
VALUES (:namespace, :run_id)

-- name: find_by_key
SELECT run_seq, event_type, data, more
FROM hf.events
WHERE run = :run
  AND key = :key

-- name: find_by_event_id
SELECT run_seq
FROM hf.events
WHERE run = :run
  AND event_id = :event_id

-- name: add_event
INSERT INTO hf.events
    (commit_id, run, run_seq, persisted_at, key, event_id, event_type, emitted_at, data, more)
VALUES (
    :commit_id, :run, :run_seq, :now, :key, :event_id, :event_type, coalesce(:emitted_at, :now),
    :data, :more
)

-- name: fetch_events
SELECT
    r.run_id, e.run_seq, e.key, e.event_id, e.event_type, e.emitted_at, e.persisted_at, e.data,
    e.more
FROM hf.runs AS r
CROSS JOIN hf.events AS e
WHERE r.namespace = :namespace
  AND r.run_id = :run_id
  AND NOT r.gone
  AND :generation IN (0, r.id)
  AND e.run = r.id
  AND e.run_seq > :after
ORDER BY e.run_seq
LIMIT :limit

-- name: list_runs
SELECT run_id
FROM hf.runs
WHERE namespace = :namespace
  AND NOT gone
  AND run_id >= :first
ORDER BY run_id
LIMIT :limit

-- name: hide_run
UPDATE hf.runs SET gone = 1
WHERE id = :id

-- name: list_gone
SELECT id
FROM hf.runs
WHERE gone
ORDER BY id
LIMIT :limit

-- name: drop_events
-- Commit ids go on from the last one given out: see set_commit_floor.
DELETE FROM hf.events
WHERE commit_id IN (
    SELECT e.commit_id
    FROM hf.events AS e
    WHERE e.run = :run
    ORDER BY e.run_seq DESC
    LIMIT :limit
)

-- name: drop_run
DELETE FROM hf.runs
WHERE id = :id

-- name: drop_views
DELETE FROM hf.run_views
WHERE run = :run

-- name: set_commit_floor
UPDATE hf.store_state SET commit_floor = (SELECT commit_id FROM hf.last_commit)

-- name: get_state
SELECT
    r.id, coalesce((SELECT max(e.run_seq) FROM hf.events AS e WHERE e.run = r.id), 0),
    s.last_seq, s.payload
FROM hf.runs AS r
LEFT JOIN hf.run_views AS s ON s.run = r.id AND s.view = :view
WHERE r.namespace = :namespace
  AND r.run_id = :run_id
  AND NOT r.gone

-- name: put_view
INSERT INTO hf.run_views (run, view, last_seq, payload)
VALUES (:run, :view, :last_seq, :payload)
ON CONFLICT (run, view) DO UPDATE SET last_seq = excluded.last_seq, payload = excluded.payload
WHERE excluded.last_seq >= last_seq

-- name: find_position
SELECT (SELECT max(epoch) FROM hf.epochs), 0, commit_id
FROM hf.last_commit

-- name: read_changes
-- As for cells. Looks at all namespaces.
WITH page (looked, seq) AS MATERIALIZED (
    SELECT count(*), max(commit_id)
    FROM (
        SELECT v.commit_id
        FROM hf.epochs AS e
        CROSS JOIN hf.events AS v
        WHERE e.epoch = :epoch
          AND v.commit_id > max(:seq, e.first_commit - 1)
          AND v.commit_id <= coalesce(e.last_commit, 9223372036854775807)
        ORDER BY v.commit_id
        LIMIT :limit
    )
)
SELECT
    e.last_commit IS NOT NULL, p.looked, 0, p.seq, 0,
    0, v.commit_id,
    r.run_id, v.run_seq, v.key, v.event_id, v.event_type, v.emitted_at, v.persisted_at, v.data,
    v.more
FROM hf.epochs AS e
CROSS JOIN page AS p
LEFT JOIN (hf.events AS v CROSS JOIN hf.runs AS r)
  ON v.commit_id > max(:seq, e.first_commit - 1)
 AND v.commit_id <= p.seq
 AND r.id = v.run
 AND r.namespace = :namespace
 AND NOT r.gone
WHERE e.epoch = :epoch
ORDER BY v.commit_id

-- name: written_since
-- The newest first: who has just begun to listen need not be told of all that ever was.
SELECT r.namespace, max(v.commit_id), sum(count(*)) OVER ()
FROM (
    SELECT commit_id, run
    FROM hf.events
    WHERE commit_id > :seq
    ORDER BY commit_id DESC
    LIMIT :most
) AS v
LEFT JOIN hf.runs AS r ON r.id = v.run
GROUP BY r.namespace
