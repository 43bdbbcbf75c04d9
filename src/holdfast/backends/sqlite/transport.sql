-- The transport on SQLite. No row locks: BEGIN IMMEDIATE holds the one writer.
--
-- After publish(m1), publish(m2), publish(m3), fetch(2), ack(m1), and m2 is given back for 5 s:
--
--   messages    (10, m1)  (11, m2)  (12, m3)
--   groups      (1, 'mailers', position 11)
--   deliveries  (group 1, message 11, due in 5 s, number 1)

-- name: find_message
SELECT 1
FROM hf.messages
WHERE message_id = :message_id
  AND namespace = :namespace
  AND published_at > :since
LIMIT 1

-- name: add_message
INSERT INTO hf.messages
    (commit_id, namespace, subject, message_id, published_at, trace_id, payload)
VALUES (:commit_id, :namespace, :subject, :message_id, :now, :trace_id, :payload)

-- name: find_group
SELECT id, subjects, ack_timeout_us, max_deliveries, position
FROM hf.groups
WHERE namespace = :namespace
  AND name = :name

-- name: list_groups
SELECT name
FROM hf.groups
WHERE namespace = :namespace
ORDER BY name

-- name: add_group
INSERT INTO hf.groups (namespace, name, subjects, ack_timeout_us, max_deliveries, position)
VALUES (:namespace, :name, :subjects, :ack_timeout_us, :max_deliveries, :position)

-- name: change_group
UPDATE hf.groups
SET subjects = :subjects, ack_timeout_us = :ack_timeout_us, max_deliveries = :max_deliveries
WHERE id = :id

-- name: drop_group
DELETE FROM hf.groups
WHERE id = :id

-- name: find_operation
SELECT answer
FROM hf.group_operations
WHERE namespace = :namespace
  AND op_id = :op_id
  AND expires_at > :now

-- name: note_operation
INSERT OR REPLACE INTO hf.group_operations (namespace, op_id, expires_at, answer)
VALUES (:namespace, :op_id, :expires_at, :answer)

-- name: drop_operations
-- A few more than come: so there are never many.
DELETE FROM hf.group_operations
WHERE (namespace, op_id) IN (
    SELECT namespace, op_id
    FROM hf.group_operations
    WHERE expires_at <= :now
    ORDER BY expires_at
    LIMIT 10
)

-- name: drop_deliveries
DELETE FROM hf.deliveries
WHERE group_id = :id

-- name: has_news
-- Whether a fetch would find anything, without the writer: messages not looked at, or due ones.
SELECT
    g.id,
    EXISTS (
        SELECT 1
        FROM hf.messages AS m
        WHERE m.namespace = g.namespace
          AND m.commit_id > g.position
          AND m.commit_id <= :upto
    ),
    (
        SELECT min(d.due_at)
        FROM hf.deliveries AS d
        WHERE d.group_id = g.id
          AND d.due_at IS NOT NULL
    ) - :now - s.clock_offset_us
FROM hf.groups AS g
CROSS JOIN hf.store_state AS s
WHERE g.namespace = :namespace
  AND g.name = :name

-- name: list_due
SELECT d.commit_id, d.number, m.message_id, m.subject, m.published_at, m.trace_id, m.payload
FROM hf.deliveries AS d
CROSS JOIN hf.messages AS m
WHERE d.group_id = :id
  AND d.due_at <= :now
  AND m.commit_id = d.commit_id
ORDER BY d.due_at, d.commit_id
LIMIT :limit

-- name: deliver_again
UPDATE hf.deliveries
SET due_at = :due_at, number = number + 1, consumer = :consumer
WHERE group_id = :id
  AND commit_id = :commit_id

-- name: give_up
UPDATE hf.deliveries
SET due_at = NULL, died_at = :now
WHERE group_id = :id
  AND commit_id = :commit_id

-- name: list_messages
SELECT commit_id, message_id, subject, published_at, trace_id, payload
FROM hf.messages
WHERE namespace = :namespace
  AND commit_id > :position
  AND commit_id <= :upto
ORDER BY commit_id
LIMIT :limit

-- name: deliver
INSERT INTO hf.deliveries (group_id, commit_id, due_at, number, consumer)
VALUES (:id, :commit_id, :due_at, 1, :consumer)

-- name: move_group
UPDATE hf.groups
SET position = :position
WHERE id = :id

-- name: ack
DELETE FROM hf.deliveries
WHERE group_id = :id
  AND commit_id = :commit_id
  AND number = :number
  AND due_at IS NOT NULL

-- name: find_delivery
SELECT number
FROM hf.deliveries
WHERE group_id = :id
  AND commit_id = :commit_id

-- name: set_due
UPDATE hf.deliveries
SET due_at = :due_at
WHERE group_id = :id
  AND commit_id = :commit_id
  AND number = :number
  AND due_at IS NOT NULL

-- name: get_status
SELECT
    (
        SELECT count(*)
        FROM hf.deliveries AS d
        WHERE d.group_id = :id
          AND d.due_at IS NOT NULL
    ),
    (
        SELECT count(*)
        FROM hf.deliveries AS d
        WHERE d.group_id = :id
          AND d.due_at IS NULL
    ),
    (
        SELECT min(m.published_at)
        FROM hf.deliveries AS d
        CROSS JOIN hf.messages AS m
        WHERE d.group_id = :id
          AND d.due_at IS NOT NULL
          AND m.commit_id = d.commit_id
    )

-- name: list_dead
SELECT
    d.commit_id, d.number, d.died_at, m.message_id, m.subject, m.published_at, m.trace_id, m.payload
FROM hf.deliveries AS d
CROSS JOIN hf.messages AS m
WHERE d.group_id = :id
  AND d.commit_id > :after
  AND d.due_at IS NULL
  AND m.commit_id = d.commit_id
ORDER BY d.commit_id
LIMIT :limit

-- name: revive
-- The count goes on in its next life: see LIFE in facets/transport.py.
UPDATE hf.deliveries
SET due_at = :now, number = (number / 1048576 + 1) * 1048576, died_at = NULL
WHERE group_id = :id
  AND commit_id = :commit_id
  AND due_at IS NULL

-- name: drop_dead
DELETE FROM hf.deliveries
WHERE group_id = :id
  AND commit_id = :commit_id
  AND due_at IS NULL

-- name: list_passed
-- The namespaces with messages, and the last message in each that all its groups are past; never
-- the newest of the store, whose number must not be given out again.
WITH RECURSIVE found (name) AS (
    SELECT min(m.namespace)
    FROM hf.messages AS m
    UNION ALL
    SELECT (SELECT min(m.namespace) FROM hf.messages AS m WHERE m.namespace > f.name)
    FROM found AS f
    WHERE f.name IS NOT NULL
)
SELECT
    f.name,
    min(
        (SELECT max(m.commit_id) FROM hf.messages AS m) - 1,
        coalesce(
            (SELECT min(g.position) FROM hf.groups AS g WHERE g.namespace = f.name),
            :int64_max
        )
    ),
    s.clock_offset_us
FROM found AS f
CROSS JOIN hf.store_state AS s
WHERE f.name IS NOT NULL

-- name: list_done
-- One after the other, from the oldest: the walk ends at the first that is not so old.
WITH RECURSIVE walk (commit_id) AS (
    SELECT min(m.commit_id)
    FROM hf.messages AS m
    WHERE m.namespace = :namespace
    UNION ALL
    SELECT (
        SELECT min(n.commit_id)
        FROM hf.messages AS n
        WHERE n.namespace = :namespace
          AND n.commit_id > w.commit_id
    )
    FROM walk AS w
    CROSS JOIN hf.messages AS m
    WHERE m.commit_id = w.commit_id
      AND m.commit_id <= :passed
      AND m.published_at < :cutoff
)
SELECT m.commit_id
FROM walk AS w
CROSS JOIN hf.messages AS m
WHERE m.commit_id = w.commit_id
  AND m.commit_id <= :passed
  AND m.published_at < :cutoff
  AND NOT EXISTS (
      SELECT 1
      FROM hf.groups AS g
      CROSS JOIN hf.deliveries AS d
      WHERE g.namespace = :namespace
        AND d.group_id = g.id
        AND d.commit_id = m.commit_id
  )
LIMIT :limit

-- name: drop_message
-- If it is still done: a new group may have begun at the start since.
DELETE FROM hf.messages AS m
WHERE m.commit_id = :commit_id
  AND NOT EXISTS (
      SELECT 1
      FROM hf.groups AS g
      WHERE g.namespace = m.namespace
        AND (
            g.position < m.commit_id
            OR EXISTS (
                SELECT 1
                FROM hf.deliveries AS d
                WHERE d.group_id = g.id
                  AND d.commit_id = m.commit_id
            )
        )
  )

-- name: written_since
SELECT namespace, max(commit_id), sum(count(*)) OVER ()
FROM (
    SELECT namespace, commit_id
    FROM hf.messages
    WHERE commit_id > :seq
    ORDER BY commit_id DESC
    LIMIT :most
)
GROUP BY namespace
