-- The transport on PostgreSQL; what writes is in migrations/.
--
-- After publish(m1), publish(m2), publish(m3), fetch(2), ack(m1), and m2 is given back for 5 s:
--
--   messages    (10, m1)  (11, m2)  (12, m3)
--   groups      (1, 'mailers', at message 11)
--   deliveries  (group 1, message 11, due in 5 s, number 1)

-- name: publish_messages
SELECT hf.publish_messages(
    :namespaces::text[], :subjects::text[], :message_ids::text[], :trace_ids::text[],
    :payloads::text[], :window_us::bigint
)

-- name: create_group
SELECT hf.create_group(
    :namespace, :name, :subjects::text[], :from_start::boolean, :ack_timeout_us::bigint,
    :max_deliveries::bigint, :op_id::uuid, :kept_us::bigint, :named::boolean
)

-- name: delete_group
SELECT hf.delete_group(:namespace, :name, :op_id::uuid, :kept_us::bigint)

-- name: list_groups
SELECT name
FROM hf.groups
WHERE namespace = :namespace
ORDER BY name

-- name: has_news
-- Whether a fetch would find anything: messages not looked at, an epoch that is over, or due ones;
-- and whether there are more, but an older transaction is still open.
SELECT
    EXISTS (SELECT 1 FROM hf.messages_ahead(g, 1)) OR e.last_commit IS NOT NULL,
    (
        SELECT min(d.due_at)
        FROM hf.deliveries AS d
        WHERE d.group_id = g.id
          AND d.due_at IS NOT NULL
    ) - hf.now_us(),
    EXISTS (
        SELECT 1
        FROM hf.messages AS m
        WHERE m.namespace = g.namespace
          AND m.feed_xid >= pg_snapshot_xmin(pg_current_snapshot())
          AND m.feed_xid < pg_snapshot_xmax(pg_current_snapshot())
          AND m.commit_id >= e.first_commit
    )
FROM hf.groups AS g
JOIN hf.epochs AS e ON e.epoch = g.epoch
WHERE g.namespace = :namespace
  AND g.name = :name

-- name: fetch_messages
SELECT group_id, xid, commit_id, number, message_id, subject, published_at, trace_id, payload
FROM hf.fetch_messages(:namespace, :name, :consumer, :limit::bigint, :look::bigint)

-- name: answer_deliveries
SELECT took_effect
FROM hf.answer_deliveries(
    :namespaces::text[], :groups::bigint[], :xids::text[], :commits::bigint[], :numbers::bigint[],
    :due_us::bigint[]
)
ORDER BY item

-- name: are_done
-- Whether the group is there, and has nothing more of the message, not as a dead letter either.
SELECT EXISTS (
    SELECT 1
    FROM hf.groups AS g
    WHERE g.namespace = i.namespace
      AND g.id = i.group_id
      AND NOT EXISTS (
          SELECT 1
          FROM hf.deliveries AS d
          WHERE d.group_id = g.id
            AND d.feed_xid = i.xid::xid8
            AND d.commit_id = i.commit_id
      )
)
FROM unnest(:namespaces::text[], :groups::bigint[], :xids::text[], :commits::bigint[])
    WITH ORDINALITY AS i (namespace, group_id, xid, commit_id, item)
ORDER BY i.item

-- name: get_status
SELECT
    (
        SELECT count(*)
        FROM hf.messages AS m
        WHERE m.namespace = g.namespace
          AND ((m.feed_xid, m.commit_id) > (g.feed_xid, g.commit_id) OR m.commit_id > e.last_commit)
          AND m.commit_id >= e.first_commit
          AND hf.is_for(g, m.subject, m.feed_xid)
    ),
    d.delivered,
    d.dead,
    least(d.oldest, (
        SELECT min(m.published_at)
        FROM hf.messages AS m
        WHERE m.namespace = g.namespace
          AND ((m.feed_xid, m.commit_id) > (g.feed_xid, g.commit_id) OR m.commit_id > e.last_commit)
          AND m.commit_id >= e.first_commit
          AND hf.is_for(g, m.subject, m.feed_xid)
    ))
FROM hf.groups AS g
JOIN hf.epochs AS e ON e.epoch = g.epoch
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE o.due_at IS NOT NULL) AS delivered,
        count(*) FILTER (WHERE o.due_at IS NULL) AS dead,
        min(m.published_at) FILTER (WHERE o.due_at IS NOT NULL) AS oldest
    FROM hf.deliveries AS o
    JOIN hf.messages AS m
      ON m.namespace = g.namespace
     AND m.feed_xid = o.feed_xid
     AND m.commit_id = o.commit_id
    WHERE o.group_id = g.id
) AS d
WHERE g.namespace = :namespace
  AND g.name = :name

-- name: list_dead
-- No row at all: no such group.
SELECT
    d.feed_xid::text, d.commit_id, d.number, d.died_at, m.message_id, m.subject, m.published_at,
    m.trace_id, m.payload
FROM hf.groups AS g
LEFT JOIN (
    hf.deliveries AS d
    JOIN hf.messages AS m
      ON m.namespace = :namespace
     AND m.feed_xid = d.feed_xid
     AND m.commit_id = d.commit_id
)
  ON d.group_id = g.id
 AND d.due_at IS NULL
 AND (d.feed_xid, d.commit_id) > (:xid::text::xid8, :commit_id::bigint)
WHERE g.namespace = :namespace
  AND g.name = :name
ORDER BY d.feed_xid, d.commit_id
LIMIT :limit

-- name: bury_dead
SELECT hf.bury_dead(
    :namespace, :name, :xid::text, :commit_id::bigint, :revive::boolean, :op_id::uuid,
    :kept_us::bigint
)

-- name: purge_messages
SELECT hf.purge_messages(:older_than_us::bigint, :limit::bigint)
