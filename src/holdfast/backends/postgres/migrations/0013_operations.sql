-- Callers may name their operations on groups and dead letters. So they are known by namespace, and
-- those that make a group are among them. What was refused is not known: it may come again.
DROP FUNCTION hf.begin_ending(uuid);

DROP TABLE hf.endings;

CREATE TABLE hf.group_operations (
    namespace text COLLATE "C" NOT NULL,
    op_id uuid NOT NULL,
    done_at bigint NOT NULL,
    -- NULL only within the transaction that does it.
    answer boolean,
    PRIMARY KEY (namespace, op_id)
);

CREATE INDEX group_operations_by_time ON hf.group_operations (done_at);

-- True if the operation is new. It is noted before anything is done: a first try that comes late,
-- or is still under way, and its repeat then take turns.
CREATE FUNCTION hf.begin_operation(p_namespace text, p_op_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
BEGIN
    INSERT INTO hf.group_operations (namespace, op_id, done_at)
    VALUES (p_namespace, p_op_id, v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- For a day. A few more go than come: so there are never many.
    DELETE FROM hf.group_operations AS d
    WHERE (d.namespace, d.op_id) IN (
        SELECT o.namespace, o.op_id
        FROM hf.group_operations AS o
        WHERE o.done_at < v_now - 86400 * 1000000::bigint
        ORDER BY o.done_at
        LIMIT 10
        FOR UPDATE SKIP LOCKED
    );
    RETURN true;
END
$$;

CREATE FUNCTION hf.end_operation(p_namespace text, p_op_id uuid, p_answer boolean) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    UPDATE hf.group_operations AS o
    SET answer = p_answer
    WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
    SELECT p_answer;
$$;

CREATE FUNCTION hf.known_answer(p_namespace text, p_op_id uuid) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT o.answer
    FROM hf.group_operations AS o
    WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
$$;

-- True if the group is new. One that is there keeps its place and gets the new settings. Consumers
-- call this whenever they begin: only what makes a group is noted.
CREATE OR REPLACE FUNCTION hf.create_group(
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
    IF hf.known_answer(p_namespace, p_op_id) THEN
        RETURN true;
    END IF;
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
        PERFORM hf.begin_operation(p_namespace, p_op_id);
        RETURN hf.end_operation(p_namespace, p_op_id, true);
    END IF;
    UPDATE hf.groups AS g
    SET subjects = p_subjects, ack_timeout_us = p_ack_timeout_us, max_deliveries = p_max_deliveries
    WHERE g.namespace = p_namespace AND g.name = p_name
    RETURNING g.op_id INTO v_op_id;
    RETURN coalesce(v_op_id = p_op_id, false);
END
$$;

-- True if there was such a group. Its deliveries are looked for once nobody can add to them, and
-- locked in the order of answers.
CREATE OR REPLACE FUNCTION hf.delete_group(p_namespace text, p_name text, p_op_id uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT hf.begin_operation(p_namespace, p_op_id) THEN
        RETURN hf.known_answer(p_namespace, p_op_id);
    END IF;
    DELETE FROM hf.groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name
    RETURNING g.id INTO v_id;
    PERFORM 1
    FROM hf.deliveries AS d
    WHERE d.group_id = v_id
    ORDER BY d.feed_xid, d.commit_id
    FOR UPDATE;
    DELETE FROM hf.deliveries AS d
    WHERE d.group_id = v_id;
    RETURN hf.end_operation(p_namespace, p_op_id, v_id IS NOT NULL);
END
$$;

-- True if there was that dead letter, NULL if there is no such group: it is gone now, or due again
-- in its next life (see LIFE in facets/transport.py).
CREATE OR REPLACE FUNCTION hf.bury_dead(
    p_namespace text,
    p_name text,
    p_xid text,
    p_commit_id bigint,
    p_revive boolean,
    p_op_id uuid
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT hf.begin_operation(p_namespace, p_op_id) THEN
        RETURN hf.known_answer(p_namespace, p_op_id);
    END IF;
    SELECT g.id INTO v_id
    FROM hf.groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name;
    IF NOT FOUND THEN
        DELETE FROM hf.group_operations AS o
        WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
        RETURN NULL;
    END IF;
    IF p_revive THEN
        UPDATE hf.deliveries AS d
        SET due_at = hf.now_us(), number = (d.number / 1048576 + 1) * 1048576, died_at = NULL
        WHERE d.group_id = v_id
          AND d.feed_xid = p_xid::xid8
          AND d.commit_id = p_commit_id
          AND d.due_at IS NULL;
    ELSE
        DELETE FROM hf.deliveries AS d
        WHERE d.group_id = v_id
          AND d.feed_xid = p_xid::xid8
          AND d.commit_id = p_commit_id
          AND d.due_at IS NULL;
    END IF;
    RETURN hf.end_operation(p_namespace, p_op_id, FOUND);
END
$$;
