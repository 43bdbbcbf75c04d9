-- The log of messages: readers stop below the oldest transaction that is still open.
CREATE TABLE hf.messages (
    namespace text COLLATE "C" NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    subject text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    published_at bigint NOT NULL,
    trace_id text,
    payload text NOT NULL,
    PRIMARY KEY (namespace, feed_xid, commit_id)
);

CREATE INDEX messages_by_id ON hf.messages (namespace, message_id, published_at);

-- For purging: xids begin anew in another epoch, these do not.
CREATE INDEX messages_by_commit ON hf.messages (namespace, commit_id);

CREATE TABLE hf.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    subjects text[] NOT NULL,  -- regular expressions
    ack_timeout_us bigint NOT NULL,
    max_deliveries bigint NOT NULL,
    -- What was committed when it was made is not for this group. NULL: everything is.
    born pg_snapshot,
    -- Messages up to here were delivered or are not for this group.
    epoch bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    -- The operation that made it, for who lost its answer.
    op_id uuid NOT NULL,
    UNIQUE (namespace, name)
);

-- Messages that were delivered and are not done.
CREATE TABLE hf.deliveries (
    group_id bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    -- When to deliver it again. NULL: never, it is a dead letter.
    due_at bigint,
    number bigint NOT NULL,
    consumer text NOT NULL,
    died_at bigint,
    PRIMARY KEY (group_id, feed_xid, commit_id)
);

CREATE INDEX deliveries_by_due ON hf.deliveries (group_id, due_at) WHERE due_at IS NOT NULL;

-- Publishes messages, in the order of the batch. Those whose id was published since p_window_us
-- are left out: who has the lock of an id decides about it.
CREATE FUNCTION hf.publish_messages(
    p_namespaces text[],
    p_subjects text[],
    p_message_ids text[],
    p_trace_ids text[],
    p_payloads text[],
    p_window_us bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint;
    v_message record;
    v_count bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(l.key)
    FROM (
        SELECT DISTINCT hashtextextended(i.message_id, hashtextextended(i.namespace, 17)) AS key
        FROM unnest(p_namespaces, p_message_ids) AS i (namespace, message_id)
        ORDER BY key
    ) AS l;
    v_now := hf.now_us();
    FOR v_message IN
        SELECT i.*
        FROM unnest(p_namespaces, p_subjects, p_message_ids, p_trace_ids, p_payloads)
            WITH ORDINALITY AS i (namespace, subject, message_id, trace_id, payload, item)
        ORDER BY i.item
    LOOP
        CONTINUE WHEN EXISTS (
            SELECT 1
            FROM hf.messages AS m
            WHERE m.namespace = v_message.namespace
              AND m.message_id = v_message.message_id
              AND m.published_at > v_now - p_window_us
        );
        INSERT INTO hf.messages (
            namespace, feed_xid, commit_id, subject, message_id, published_at, trace_id, payload
        )
        VALUES (
            v_message.namespace, pg_current_xact_id(), nextval('hf.commit_ids'),
            v_message.subject, v_message.message_id, v_now, v_message.trace_id, v_message.payload
        );
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;

-- True if the group is new, also if it is so by an earlier try of the same operation.
CREATE FUNCTION hf.create_group(
    p_namespace text,
    p_name text,
    p_subjects text[],
    p_from_start boolean,
    p_ack_timeout_us bigint,
    p_max_deliveries bigint,
    p_op_id uuid
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_op_id uuid;
BEGIN
    INSERT INTO hf.groups (
        namespace, name, subjects, ack_timeout_us, max_deliveries, born, epoch, feed_xid, commit_id,
        op_id
    )
    SELECT
        p_namespace, p_name, p_subjects, p_ack_timeout_us, p_max_deliveries,
        CASE WHEN NOT p_from_start THEN pg_current_snapshot() END,
        CASE WHEN p_from_start THEN min(e.epoch) ELSE max(e.epoch) END,
        CASE WHEN p_from_start THEN '0'::xid8 ELSE pg_snapshot_xmin(pg_current_snapshot()) END,
        0, p_op_id
    FROM hf.epochs AS e
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    UPDATE hf.groups AS g
    SET subjects = p_subjects, ack_timeout_us = p_ack_timeout_us, max_deliveries = p_max_deliveries
    WHERE g.namespace = p_namespace AND g.name = p_name
    RETURNING g.op_id INTO v_op_id;
    RETURN coalesce(v_op_id = p_op_id, false);
END
$$;

-- Messages above a group's place in its epoch, as far as they can be told, those for others too.
CREATE FUNCTION hf.messages_ahead(p_group hf.groups, p_limit bigint) RETURNS SETOF hf.messages
LANGUAGE sql VOLATILE
AS $$
    SELECT m.*
    FROM hf.epochs AS e
    CROSS JOIN LATERAL (
        SELECT o.*
        FROM hf.messages AS o
        WHERE o.namespace = p_group.namespace
          AND (o.feed_xid, o.commit_id) > (p_group.feed_xid, p_group.commit_id)
          AND (
              e.last_commit IS NOT NULL OR o.feed_xid < pg_snapshot_xmin(pg_current_snapshot())
          )
          AND o.commit_id >= e.first_commit
          AND (e.last_commit IS NULL OR o.commit_id <= e.last_commit)
        ORDER BY o.feed_xid, o.commit_id
        LIMIT p_limit
    ) AS m
    WHERE e.epoch = p_group.epoch
$$;

-- Whether the group gets that message.
CREATE FUNCTION hf.is_for(p_group hf.groups, p_subject text, p_xid xid8) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT (p_group.born IS NULL OR NOT pg_visible_in_snapshot(p_xid, p_group.born))
        AND p_subject ~ ANY (p_group.subjects)
$$;

-- Up to p_limit messages for a consumer: those that are due again, then new ones. Fetches of a
-- group take turns. What is being answered is left alone: hence no circle of locks.
CREATE FUNCTION hf.fetch_messages(
    p_namespace text, p_name text, p_consumer text, p_limit bigint, p_look bigint
) RETURNS TABLE (
    xid text, commit_id bigint, number bigint, message_id text, subject text, published_at bigint,
    trace_id text, payload text
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_group hf.groups%ROWTYPE;
    v_now bigint;
    v_found bigint := 0;
    v_due record;
    v_new hf.messages%ROWTYPE;
    v_closed boolean;
BEGIN
    SELECT g.* INTO v_group
    FROM hf.groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := hf.now_us();
    FOR v_due IN
        SELECT d.feed_xid, d.commit_id, d.number
        FROM hf.deliveries AS d
        WHERE d.group_id = v_group.id AND d.due_at <= v_now
        ORDER BY d.due_at, d.feed_xid, d.commit_id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        IF v_due.number >= v_group.max_deliveries THEN
            UPDATE hf.deliveries AS d
            SET due_at = NULL, died_at = v_now
            WHERE d.group_id = v_group.id
              AND d.feed_xid = v_due.feed_xid
              AND d.commit_id = v_due.commit_id;
            CONTINUE;
        END IF;
        UPDATE hf.deliveries AS d
        SET due_at = v_now + v_group.ack_timeout_us, number = d.number + 1, consumer = p_consumer
        WHERE d.group_id = v_group.id
          AND d.feed_xid = v_due.feed_xid
          AND d.commit_id = v_due.commit_id;
        RETURN QUERY
        SELECT
            m.feed_xid::text, m.commit_id, v_due.number + 1, m.message_id, m.subject,
            m.published_at, m.trace_id, m.payload
        FROM hf.messages AS m
        WHERE m.namespace = p_namespace
          AND m.feed_xid = v_due.feed_xid
          AND m.commit_id = v_due.commit_id;
        v_found := v_found + 1;
    END LOOP;

    FOR v_new IN SELECT a.* FROM hf.messages_ahead(v_group, p_look) AS a LOOP
        EXIT WHEN v_found = p_limit;
        v_group.feed_xid := v_new.feed_xid;
        v_group.commit_id := v_new.commit_id;
        CONTINUE WHEN NOT hf.is_for(v_group, v_new.subject, v_new.feed_xid);
        INSERT INTO hf.deliveries (group_id, feed_xid, commit_id, due_at, number, consumer)
        VALUES (
            v_group.id, v_new.feed_xid, v_new.commit_id, v_now + v_group.ack_timeout_us, 1,
            p_consumer
        );
        xid := v_new.feed_xid::text;
        commit_id := v_new.commit_id;
        number := 1;
        message_id := v_new.message_id;
        subject := v_new.subject;
        published_at := v_new.published_at;
        trace_id := v_new.trace_id;
        payload := v_new.payload;
        RETURN NEXT;
        v_found := v_found + 1;
    END LOOP;
    IF NOT EXISTS (SELECT 1 FROM hf.messages_ahead(v_group, 1)) THEN
        -- The epoch may be over: go on in the next one, where nothing is older than the group.
        UPDATE hf.groups AS g
        SET epoch = g.epoch + 1, feed_xid = '0', commit_id = 0, born = NULL
        FROM hf.epochs AS e
        WHERE g.id = v_group.id AND e.epoch = g.epoch AND e.last_commit IS NOT NULL;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    UPDATE hf.groups AS g
    SET feed_xid = v_group.feed_xid, commit_id = v_group.commit_id
    WHERE g.id = v_group.id
      AND (g.feed_xid, g.commit_id) < (v_group.feed_xid, v_group.commit_id);
END
$$;

-- What consumers say about their deliveries, by their place in the batch: true if it took effect.
CREATE FUNCTION hf.answer_deliveries(
    p_namespaces text[],
    p_names text[],
    p_xids text[],
    p_commits bigint[],
    p_numbers bigint[],
    p_due_us bigint[]     -- -1: it is done
) RETURNS TABLE (item bigint, took_effect boolean)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
    v_answer record;
BEGIN
    FOR v_answer IN
        SELECT i.item, g.id, i.xid::xid8 AS feed_xid, i.commit_id, i.number, i.due_us
        FROM unnest(p_namespaces, p_names, p_xids, p_commits, p_numbers, p_due_us)
            WITH ORDINALITY AS i (namespace, name, xid, commit_id, number, due_us, item)
        LEFT JOIN hf.groups AS g ON g.namespace = i.namespace AND g.name = i.name
        ORDER BY g.id, i.xid::xid8, i.commit_id, i.item
    LOOP
        IF v_answer.due_us < 0 THEN
            DELETE FROM hf.deliveries AS d
            WHERE d.group_id = v_answer.id
              AND d.feed_xid = v_answer.feed_xid
              AND d.commit_id = v_answer.commit_id
              AND d.number = v_answer.number
              AND d.due_at IS NOT NULL;
        ELSE
            UPDATE hf.deliveries AS d
            SET due_at = v_now + v_answer.due_us
            WHERE d.group_id = v_answer.id
              AND d.feed_xid = v_answer.feed_xid
              AND d.commit_id = v_answer.commit_id
              AND d.number = v_answer.number
              AND d.due_at IS NOT NULL;
        END IF;
        item := v_answer.item;
        took_effect := FOUND;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Removes up to p_limit messages that are so old, that every group is past, and that none still
-- has. How many. In each namespace it ends at the first that is younger, or that a group is to
-- get: what comes after that is purged a little later.
CREATE FUNCTION hf.purge_messages(p_older_than_us bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_cutoff bigint := hf.now_us() - p_older_than_us;
    v_namespace text := '';
    v_last bigint;
    v_message record;
    v_gone bigint := 0;
BEGIN
    LOOP
        SELECT min(m.namespace) INTO v_namespace
        FROM hf.messages AS m
        WHERE m.namespace > v_namespace;
        EXIT WHEN v_namespace IS NULL;
        v_last := 0;
        LOOP
            -- One at a time: a longer list would be made, and read, to be thrown away.
            SELECT m.feed_xid, m.commit_id, m.published_at INTO v_message
            FROM hf.messages AS m
            WHERE m.namespace = v_namespace AND m.commit_id > v_last
            ORDER BY m.commit_id
            LIMIT 1;
            EXIT WHEN NOT FOUND OR v_message.published_at >= v_cutoff OR EXISTS (
                SELECT 1
                FROM hf.groups AS g
                JOIN hf.epochs AS e ON e.epoch = g.epoch
                WHERE g.namespace = v_namespace
                  AND (
                      (
                          (v_message.feed_xid, v_message.commit_id) > (g.feed_xid, g.commit_id)
                          AND v_message.commit_id >= e.first_commit
                      )
                      OR v_message.commit_id > e.last_commit
                  )
            );
            v_last := v_message.commit_id;
            DELETE FROM hf.messages AS m
            WHERE m.namespace = v_namespace
              AND m.feed_xid = v_message.feed_xid
              AND m.commit_id = v_message.commit_id
              AND NOT EXISTS (
                  SELECT 1
                  FROM hf.groups AS g
                  JOIN hf.deliveries AS d ON d.group_id = g.id
                  WHERE g.namespace = v_namespace
                    AND d.feed_xid = v_message.feed_xid
                    AND d.commit_id = v_message.commit_id
              );
            IF FOUND THEN
                v_gone := v_gone + 1;
                IF v_gone = p_limit THEN
                    RETURN v_gone;
                END IF;
            END IF;
        END LOOP;
    END LOOP;
    RETURN v_gone;
END
$$;
