-- Callers may name their operations on groups and dead letters. So these are known by namespace, and
-- those that make or change a group are among them.
DROP FUNCTION hf.create_group(text, text, text[], boolean, bigint, bigint, uuid);

DROP FUNCTION hf.delete_group(text, text, uuid);

DROP FUNCTION hf.bury_dead(text, text, text, bigint, boolean, uuid);

DROP FUNCTION hf.begin_ending(uuid);

DROP TABLE hf.endings;

ALTER TABLE hf.groups DROP COLUMN op_id;

-- What became of each: the same one again has the first answer.
CREATE TABLE hf.group_operations (
    namespace text COLLATE "C" NOT NULL,
    op_id uuid NOT NULL,
    expires_at bigint NOT NULL,
    -- NULL only within the transaction that does it.
    answer boolean,
    PRIMARY KEY (namespace, op_id)
);

CREATE INDEX group_operations_by_expiry ON hf.group_operations (expires_at);

-- True if the operation is new. It is noted before anything is done: a first try that comes late,
-- or is still under way, and its repeat then take turns.
CREATE FUNCTION hf.begin_operation(p_namespace text, p_op_id uuid, p_kept_us bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
BEGIN
    INSERT INTO hf.group_operations AS o (namespace, op_id, expires_at)
    VALUES (p_namespace, p_op_id, v_now + p_kept_us)
    ON CONFLICT (namespace, op_id) DO UPDATE
    SET expires_at = excluded.expires_at, answer = NULL
    WHERE o.expires_at <= v_now;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- A few more go than come: so there are never many.
    DELETE FROM hf.group_operations AS d
    WHERE (d.namespace, d.op_id) IN (
        SELECT o.namespace, o.op_id
        FROM hf.group_operations AS o
        WHERE o.expires_at <= v_now
        ORDER BY o.expires_at
        LIMIT 10
        FOR UPDATE SKIP LOCKED
    );
    RETURN true;
END
$$;

-- The answer itself, known from now on. NULL: it was refused, and may come again.
CREATE FUNCTION hf.end_operation(p_namespace text, p_op_id uuid, p_answer boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_answer IS NULL THEN
        DELETE FROM hf.group_operations AS o
        WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
    ELSE
        UPDATE hf.group_operations AS o
        SET answer = p_answer
        WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
    END IF;
    RETURN p_answer;
END
$$;

CREATE FUNCTION hf.known_answer(p_namespace text, p_op_id uuid) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT o.answer
    FROM hf.group_operations AS o
    WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
$$;

-- True if the group is new. One that is there keeps its place and gets the new settings. Consumers
-- call this whenever they begin, and name no operation: they write nothing if nothing changes.
CREATE FUNCTION hf.create_group(
    p_namespace text,
    p_name text,
    p_subjects text[],
    p_from_start boolean,
    p_ack_timeout_us bigint,
    p_max_deliveries bigint,
    p_op_id uuid,
    p_kept_us bigint,
    p_named boolean
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_is_so boolean;
    v_known boolean;
BEGIN
    IF NOT p_named THEN
        v_is_so := EXISTS (
            SELECT 1
            FROM hf.groups AS g
            WHERE g.namespace = p_namespace
              AND g.name = p_name
              AND g.subjects = p_subjects
              AND g.ack_timeout_us = p_ack_timeout_us
              AND g.max_deliveries = p_max_deliveries
        );
        -- After that: if an earlier try of this one made it so, its note is there too.
        v_known := hf.known_answer(p_namespace, p_op_id);
        IF v_is_so OR v_known IS NOT NULL THEN
            RETURN coalesce(v_known, false);
        END IF;
    END IF;
    IF NOT hf.begin_operation(p_namespace, p_op_id, p_kept_us) THEN
        RETURN hf.known_answer(p_namespace, p_op_id);
    END IF;
    LOOP
        INSERT INTO hf.groups (
            namespace, name, subjects, ack_timeout_us, max_deliveries, born, epoch, feed_xid,
            commit_id
        )
        SELECT
            p_namespace, p_name, p_subjects, p_ack_timeout_us, p_max_deliveries,
            CASE WHEN NOT p_from_start THEN pg_current_snapshot() END,
            CASE WHEN p_from_start THEN min(e.epoch) ELSE max(e.epoch) END,
            CASE WHEN p_from_start THEN '0'::xid8 ELSE pg_snapshot_xmin(pg_current_snapshot()) END,
            0
        FROM hf.epochs AS e
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN hf.end_operation(p_namespace, p_op_id, true);
        END IF;
        UPDATE hf.groups AS g
        SET
            subjects = p_subjects,
            ack_timeout_us = p_ack_timeout_us,
            max_deliveries = p_max_deliveries
        WHERE g.namespace = p_namespace AND g.name = p_name;
        IF FOUND THEN
            RETURN hf.end_operation(p_namespace, p_op_id, false);
        END IF;
        -- It was deleted between the two.
    END LOOP;
END
$$;

-- True if there was such a group. Its deliveries are looked for once nobody can add to them, and
-- locked in the order of answers.
CREATE FUNCTION hf.delete_group(
    p_namespace text, p_name text, p_op_id uuid, p_kept_us bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT hf.begin_operation(p_namespace, p_op_id, p_kept_us) THEN
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
CREATE FUNCTION hf.bury_dead(
    p_namespace text,
    p_name text,
    p_xid text,
    p_commit_id bigint,
    p_revive boolean,
    p_op_id uuid,
    p_kept_us bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT hf.begin_operation(p_namespace, p_op_id, p_kept_us) THEN
        RETURN hf.known_answer(p_namespace, p_op_id);
    END IF;
    SELECT g.id INTO v_id
    FROM hf.groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name;
    IF NOT FOUND THEN
        RETURN hf.end_operation(p_namespace, p_op_id, NULL);
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
