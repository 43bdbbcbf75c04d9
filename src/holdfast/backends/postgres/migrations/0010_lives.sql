-- A dead letter that is revived begins a new life: its deliveries are counted from 1 again, in a
-- million of numbers of their own (see LIFE in facets/transport.py). So nobody who held the message
-- before it died can answer for who has it now.
CREATE OR REPLACE FUNCTION hf.fetch_messages(
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
