-- What became of operations that ended something: a group, or a dead letter. Who lost the answer
-- asks under the same id, and hears what the first try came to. For a day, by the store's clock.
CREATE TABLE hf.endings (
    op_id uuid PRIMARY KEY,
    ended_at bigint NOT NULL,
    -- NULL: there is no such group.
    was_there boolean
);

CREATE INDEX endings_by_time ON hf.endings (ended_at);

-- True if the operation is new. It is noted before anything is done: a first try that comes late,
-- or is still under way, and its repeat then take turns.
CREATE FUNCTION hf.begin_ending(p_op_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
BEGIN
    INSERT INTO hf.endings (op_id, ended_at)
    VALUES (p_op_id, v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- A few more than come: so there are never many.
    DELETE FROM hf.endings AS e
    WHERE e.op_id IN (
        SELECT o.op_id
        FROM hf.endings AS o
        WHERE o.ended_at < v_now - 86400 * 1000000::bigint
        ORDER BY o.ended_at
        LIMIT 10
        FOR UPDATE SKIP LOCKED
    );
    RETURN true;
END
$$;

-- True if there was such a group. Its deliveries are looked for once nobody can add to them, and
-- locked in the order of answers.
CREATE FUNCTION hf.delete_group(p_namespace text, p_name text, p_op_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT hf.begin_ending(p_op_id) THEN
        RETURN (SELECT e.was_there FROM hf.endings AS e WHERE e.op_id = p_op_id);
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
    UPDATE hf.endings AS e
    SET was_there = v_id IS NOT NULL
    WHERE e.op_id = p_op_id;
    RETURN v_id IS NOT NULL;
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
    p_op_id uuid
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
    v_was_there boolean;
BEGIN
    IF NOT hf.begin_ending(p_op_id) THEN
        RETURN (SELECT e.was_there FROM hf.endings AS e WHERE e.op_id = p_op_id);
    END IF;
    SELECT g.id INTO v_id
    FROM hf.groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name;
    IF NOT FOUND THEN
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
    v_was_there := FOUND;
    UPDATE hf.endings AS e
    SET was_there = v_was_there
    WHERE e.op_id = p_op_id;
    RETURN v_was_there;
END
$$;
