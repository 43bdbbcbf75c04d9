-- Records on SQLite. No row locks: BEGIN IMMEDIATE holds the one writer.
--
-- After put(a, {x: 1}), put(b, {x: 2}, ttl=60), set_field(a, x, 3), delete(b):
--
--   records         (1, 'a', {x: 3}, NULL, commit 12)  (2, 'b', NULL, tomorrow, commit 13)
--   record_changes  (10, record 1)  (11, record 2)  (12, record 1)  (13, record 2)
--
-- Of the log the last two count. Times in results are what is left by the store's clock, which
-- is this machine's (:now) plus an offset.

-- name: get_record
SELECT r.fields, r.expires_at - :now - s.clock_offset_us
FROM hf.records AS r
CROSS JOIN hf.store_state AS s
WHERE r.namespace = :namespace
  AND r.key = :key

-- name: list_records
-- Also those that are absent: a page is so many rows looked at.
SELECT
    r.key, r.fields, r.expires_at - :now - s.clock_offset_us, r.commit_id, r.commit_id > :since_seq
FROM hf.records AS r
CROSS JOIN hf.store_state AS s
WHERE r.namespace = :namespace
  AND r.key >= :first
  AND r.key < :end
ORDER BY r.key
LIMIT :limit

-- name: get_row
SELECT id, fields, expires_at, updated_at, op_id
FROM hf.records
WHERE namespace = :namespace
  AND key = :key

-- name: put_row
-- Whatever was there before, unless this very operation wrote it. Triggers write the log.
INSERT INTO hf.records (namespace, key, fields, expires_at, updated_at, commit_id, op_id)
VALUES (:namespace, :key, :fields, :expires_at, :now, :commit_id, :op_id)
ON CONFLICT (namespace, key) DO UPDATE
SET fields = excluded.fields, expires_at = excluded.expires_at, updated_at = excluded.updated_at,
    commit_id = excluded.commit_id, op_id = excluded.op_id
WHERE op_id <> excluded.op_id
RETURNING id

-- name: add_row
INSERT INTO hf.records (namespace, key, fields, expires_at, updated_at, commit_id, op_id)
VALUES (:namespace, :key, :fields, :expires_at, :now, :commit_id, :op_id)

-- name: change_row
UPDATE hf.records
SET fields = :fields, expires_at = :expires_at, updated_at = :now, commit_id = :commit_id,
    op_id = :op_id
WHERE id = :id

-- name: add_change
-- Of what is buried: it has not been written.
INSERT INTO hf.record_changes (commit_id, record_id, changed_at)
VALUES (:commit_id, :id, :now)

-- name: is_purge_due
SELECT
    EXISTS (SELECT 1 FROM hf.records WHERE expires_at <= :now)
    OR (SELECT changed_at FROM hf.record_changes ORDER BY commit_id LIMIT 1) < :cutoff

-- name: list_expired
SELECT id, namespace, key, fields
FROM hf.records
WHERE expires_at <= :now
ORDER BY expires_at
LIMIT :limit

-- name: bury_row
UPDATE hf.records
SET fields = NULL, expires_at = :expires_at, commit_id = :commit_id
WHERE id = :id

-- name: drop_row
DELETE FROM hf.records
WHERE id = :id

-- name: find_old_changes
-- Only the first entries are looked at, because the log is in the order of time. Never the newest
-- entry: commit ids go on from there.
SELECT max(commit_id), count(*)
FROM (
    SELECT c.commit_id, c.changed_at
    FROM hf.record_changes AS c
    WHERE c.commit_id < (SELECT max(n.commit_id) FROM hf.record_changes AS n)
    ORDER BY c.commit_id
    LIMIT :limit
)
WHERE changed_at < :cutoff

-- name: drop_changes
DELETE FROM hf.record_changes
WHERE commit_id <= :upto

-- name: set_floor
UPDATE hf.store_state
SET records_floor = max(records_floor, :upto)

-- name: list_indexes
SELECT id, namespace, prefix, fields, filled_upto
FROM hf.record_indexes
ORDER BY id

-- name: add_index
INSERT INTO hf.record_indexes (namespace, prefix, fields, filled_upto)
VALUES (:namespace, :prefix, :fields, '')
ON CONFLICT DO NOTHING

-- name: fill_index
UPDATE hf.record_indexes
SET filled_upto = :filled_upto
WHERE id = :id

-- name: drop_index
DELETE FROM hf.record_indexes
WHERE id = :id

-- name: drop_entries
DELETE FROM hf.record_index_entries
WHERE index_id = :id

-- name: add_entry
INSERT INTO hf.record_index_entries (index_id, lead, sort, key)
VALUES (:id, :lead, :sort, :key)
ON CONFLICT DO NOTHING

-- name: drop_entry
DELETE FROM hf.record_index_entries
WHERE index_id = :id
  AND lead = :lead
  AND sort = :sort
  AND key = :key

-- name: find_records
SELECT r.key, r.fields, r.expires_at - :now - s.clock_offset_us
FROM hf.store_state AS s
CROSS JOIN hf.record_index_entries AS e
CROSS JOIN hf.records AS r
WHERE e.index_id = :id
  AND e.lead = :lead
  AND e.sort >= :low
  AND e.sort <= :high
  AND e.key >= :first
  AND e.key < :end
  AND r.namespace = :namespace
  AND r.key = e.key
ORDER BY e.sort, e.key
LIMIT :limit

-- name: find_position
SELECT (SELECT max(epoch) FROM hf.epochs), 0, commit_id
FROM hf.last_commit

-- name: is_lost
-- Of all namespaces: the log is cut for all at once.
SELECT s.records_floor > max(:seq, e.first_commit - 1)
FROM hf.store_state AS s
CROSS JOIN hf.epochs AS e
WHERE e.epoch = :epoch

-- name: read_changes
-- As for cells. Looks at all namespaces, and entries that no longer count are looked at too.
WITH page (looked, seq) AS MATERIALIZED (
    SELECT count(*), max(commit_id)
    FROM (
        SELECT c.commit_id
        FROM hf.epochs AS e
        CROSS JOIN hf.record_changes AS c
        WHERE e.epoch = :epoch
          AND c.commit_id > max(:seq, e.first_commit - 1)
          AND c.commit_id <= coalesce(e.last_commit, 9223372036854775807)
        ORDER BY c.commit_id
        LIMIT :limit
    )
)
SELECT
    e.last_commit IS NOT NULL, p.looked, 0, p.seq, 0,
    0, r.commit_id, r.key, r.fields, r.expires_at - :now - s.clock_offset_us
FROM hf.epochs AS e
CROSS JOIN page AS p
CROSS JOIN hf.store_state AS s
LEFT JOIN (hf.record_changes AS c CROSS JOIN hf.records AS r)
  ON c.commit_id > max(:seq, e.first_commit - 1)
 AND c.commit_id <= p.seq
 AND r.id = c.record_id
 AND r.commit_id = c.commit_id
 AND r.namespace = :namespace
 AND r.key >= :first
 AND r.key < :end
WHERE e.epoch = :epoch
ORDER BY r.commit_id

-- name: written_since
-- The newest first: who has just begun to listen need not be told of all that ever was.
SELECT r.namespace, max(c.commit_id), sum(count(*)) OVER ()
FROM (
    SELECT commit_id, record_id
    FROM hf.record_changes
    WHERE commit_id > :seq
    ORDER BY commit_id DESC
    LIMIT :most
) AS c
LEFT JOIN hf.records AS r ON r.id = c.record_id
GROUP BY r.namespace
