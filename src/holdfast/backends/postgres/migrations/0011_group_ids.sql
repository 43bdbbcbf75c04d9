-- A delivery belongs to the group as it was when it was delivered: who answers names the group by
-- its id, not by a name that another group may have by now.
DROP FUNCTION hf.fetch_messages(text, text, text, bigint, bigint);

-- Up to p_limit messages for a consumer: those that are due again, then new ones. Fetches of a
-- group take turns. What is being answered is left alone: hence no circle of locks.
CREATE FUNCTION hf.fetch_messages(
    p_namespace text, p_name text, p_consumer text, p_limit bigint, p_look bigint
) RETURNS TABLE (
    group_id bigint, xid text, commit_id bigint, number bigint, message_id text, subject text,
    published_at bigint, trace_id text, payload text
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
        IF v_due.number % 1048576 >= v_group.max_deliveries THEN
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
            v_group.id, m.feed_xid::text, m.commit_id, v_due.number + 1, m.message_id,
            m.subject, m.published_at, m.trace_id, m.payload
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
        group_id := v_group.id;
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

DROP FUNCTION hf.answer_deliveries(text[], text[], text[], bigint[], bigint[], bigint[]);

-- What consumers say about their deliveries, by their place in the batch: true if it took effect.
CREATE FUNCTION hf.answer_deliveries(
    p_namespaces text[],
    p_groups bigint[],
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
        FROM unnest(p_namespaces, p_groups, p_xids, p_commits, p_numbers, p_due_us)
            WITH ORDINALITY AS i (namespace, group_id, xid, commit_id, number, due_us, item)
        LEFT JOIN hf.groups AS g ON g.namespace = i.namespace AND g.id = i.group_id
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
