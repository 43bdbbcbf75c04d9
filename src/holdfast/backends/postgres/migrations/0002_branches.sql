-- Branches: merges, what retention must keep for them, and the functions that change branches.
--
-- Lock order: writers share the advisory lock of their branch (see write_cell). Who needs a true
-- cut of a branch, or ends it, takes that lock exclusively, one branch in a transaction.

-- Of two branches: their last merge, and one that is under way (done = 0).
CREATE TABLE hf.merges (
    namespace text COLLATE "C" NOT NULL,
    low_id bigint NOT NULL,
    high_id bigint NOT NULL,
    done integer NOT NULL,
    source_id bigint NOT NULL,
    source_commit bigint NOT NULL,
    op_id uuid NOT NULL,
    PRIMARY KEY (namespace, low_id, high_id, done)
);

CREATE INDEX merges_by_source ON hf.merges (namespace, source_id, source_commit);

-- Commits at which a branch is looked at from elsewhere: what was newest there then is kept.
CREATE VIEW hf.cuts (namespace, branch_id, commit_id) AS
SELECT namespace, parent_id, fork_commit FROM hf.branches
UNION ALL
SELECT namespace, source_id, source_commit FROM hf.merges;

-- True when the version is seen from elsewhere: a cut lies between it and its successor.
-- So is the first one on a branch: where its own history begins, its parent's must end.
CREATE FUNCTION hf.is_seen(
    p_namespace text, p_branch_id bigint, p_name text, p_commit_id bigint
) RETURNS boolean
LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT 1
    FROM hf.cuts AS c
    WHERE c.namespace = p_namespace
      AND c.branch_id = p_branch_id
      AND c.commit_id >= p_commit_id
      AND c.commit_id < (
        SELECT min(n.commit_id)
        FROM hf.cell_versions AS n
        WHERE n.namespace = p_namespace
          AND n.branch_id = p_branch_id
          AND n.name = p_name
          AND n.commit_id > p_commit_id
      )
) OR (p_branch_id > 0 AND p_commit_id = (
    SELECT min(f.commit_id)
    FROM hf.cell_versions AS f
    WHERE f.namespace = p_namespace AND f.branch_id = p_branch_id AND f.name = p_name
));

-- Drops versions that retention does not keep, out of the oldest few of each cell; what is seen
-- from elsewhere is only hidden. A version's time ends where its successor's begins: it goes
-- when that one is old enough. Answers how many went, and how many rows were touched.
-- No sequential scans: a plan made while the table was young would stay with a connection.
CREATE FUNCTION hf.trim_cells(
    p_namespace text,
    p_branch_id bigint,
    p_first text,
    p_last text,
    p_slice bigint,
    p_versions bigint,
    p_cutoff bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    -- Without branches nothing is seen from elsewhere, and nobody shall pay for asking.
    v_forked boolean := EXISTS (SELECT 1 FROM hf.branches AS b WHERE b.namespace = p_namespace);
    v_old tid[];
    v_seen tid[];
    v_hidden bigint;
    v_gone bigint;
BEGIN
    -- An older snapshot (only a caller's transaction has one) may not know of a fork: what is
    -- too old goes with a later write.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN ARRAY[0, 0];
    END IF;
    SELECT
        array_agg(v.place) FILTER (WHERE NOT v.seen),
        array_agg(v.place) FILTER (WHERE v.seen),
        count(*) FILTER (WHERE v.hidden)
    INTO v_old, v_seen, v_hidden
    FROM (
        SELECT
            o.place, o.hidden,
            v_forked AND hf.is_seen(c.namespace, c.branch_id, c.name, o.commit_id) AS seen
        FROM hf.cells AS c
        CROSS JOIN LATERAL (
            SELECT v.ctid AS place, v.commit_id, v.version, v.hidden
            FROM hf.cell_versions AS v
            WHERE v.namespace = c.namespace
              AND v.branch_id = c.branch_id
              AND v.name = c.name
              AND NOT (
                v.hidden AND v_forked
                AND hf.is_seen(c.namespace, c.branch_id, c.name, v.commit_id)
              )
            ORDER BY v.commit_id
            LIMIT p_slice
        ) AS o
        WHERE c.namespace = p_namespace
          AND c.branch_id = p_branch_id
          AND c.name >= p_first
          AND c.name <= p_last
          AND o.commit_id < c.commit_id
          AND (
            o.hidden
            OR o.version <= c.version - p_versions
            OR (
                SELECT n.updated_at
                FROM hf.cell_versions AS n
                WHERE n.namespace = c.namespace
                  AND n.branch_id = c.branch_id
                  AND n.name = c.name
                  AND n.commit_id > o.commit_id
                ORDER BY n.commit_id
                LIMIT 1
            ) <= p_cutoff
          )
    ) AS v;
    -- By place: the cell's lock is held, so versions stay where the query found them.
    IF v_old IS NOT NULL THEN
        DELETE FROM hf.cell_versions WHERE ctid = ANY (v_old);
    END IF;
    IF v_seen IS NOT NULL THEN
        UPDATE hf.cell_versions SET hidden = true WHERE ctid = ANY (v_seen);
    END IF;
    v_gone := coalesce(cardinality(v_old), 0) + coalesce(cardinality(v_seen), 0);
    RETURN ARRAY[v_gone - v_hidden, v_gone];
END
$$;

-- Trims a range of cells that nobody writes to; NULL when the branch is gone. Locks as a writer
-- does: the branch, so that no fork comes between, then the cells in key order.
CREATE FUNCTION hf.prune_cells(
    p_namespace text,
    p_branch text,
    p_first text,
    p_last text,
    p_slice bigint,
    p_versions bigint,
    p_age_us bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_branch bigint := hf.branch_id(p_namespace, p_branch);
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_namespace, v_branch));
    PERFORM 1
    FROM hf.cells AS c
    WHERE c.namespace = p_namespace
      AND c.branch_id = v_branch
      AND c.name >= p_first
      AND c.name <= p_last
    ORDER BY c.name
    FOR NO KEY UPDATE;
    RETURN hf.trim_cells(
        p_namespace, v_branch, p_first, p_last, p_slice, p_versions,
        CASE WHEN p_age_us IS NULL THEN -1 ELSE hf.now_us() - p_age_us END
    );
END
$$;

-- Waits until no writer of the branch is in flight, and keeps new ones out until the commit.
-- NULL when there is no such branch. In statements of its own: what it finds must be newer than
-- the lock.
CREATE FUNCTION hf.lock_branch(p_namespace text, p_branch text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_branch bigint := hf.branch_id(p_namespace, p_branch);
BEGIN
    IF v_branch IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace, v_branch));
    IF v_branch IS DISTINCT FROM hf.branch_id(p_namespace, p_branch) THEN
        RETURN NULL;
    END IF;
    RETURN v_branch;
END
$$;

-- Makes a branch: no cell is read or copied. The fork commit is drawn under the lock, so every
-- smaller one of the source is committed, and it stays the source's past for ever.
CREATE FUNCTION hf.fork_branch(
    p_namespace text, p_name text, p_source text, p_op_id uuid, p_most_levels bigint,
    OUT outcome text, OUT name text, OUT parent text, OUT fork_commit bigint, OUT created_at bigint
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_source bigint := hf.lock_branch(p_namespace, p_source);
    v_levels bigint;
BEGIN
    SELECT 'done', b.name, coalesce(p.name, 'main'), b.fork_commit, b.created_at
    INTO outcome, name, parent, fork_commit, created_at
    FROM hf.branches AS b
    LEFT JOIN hf.branches AS p ON p.id = b.parent_id
    WHERE b.namespace = p_namespace AND b.op_id = p_op_id;
    IF FOUND THEN
        RETURN;
    ELSIF v_source IS NULL THEN
        outcome := 'no source';
        RETURN;
    END IF;

    WITH RECURSIVE lineage (branch_id) AS (
        SELECT v_source
        UNION ALL
        SELECT b.parent_id
        FROM lineage AS l
        JOIN hf.branches AS b ON b.id = l.branch_id
    )
    SELECT count(*) INTO v_levels FROM lineage;
    IF v_levels > p_most_levels THEN
        outcome := 'too deep';
        RETURN;
    END IF;

    INSERT INTO hf.branches AS b (namespace, name, parent_id, fork_commit, created_at, op_id)
    VALUES (p_namespace, p_name, v_source, nextval('hf.commit_ids'), hf.now_us(), p_op_id)
    ON CONFLICT DO NOTHING
    RETURNING 'done', b.name, p_source, b.fork_commit, b.created_at
    INTO outcome, name, parent, fork_commit, created_at;
    IF NOT FOUND THEN
        outcome := 'taken';
    END IF;
END
$$;

-- True if the branch was there, or if it was this very operation that deleted it.
CREATE FUNCTION hf.delete_branch(p_namespace text, p_name text, p_op_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_branch bigint := hf.lock_branch(p_namespace, p_name);
BEGIN
    IF v_branch IS NULL THEN
        RETURN EXISTS (
            SELECT 1
            FROM hf.branches AS b
            WHERE b.namespace = p_namespace AND b.name = p_name AND b.deleted_op = p_op_id
        );
    END IF;
    UPDATE hf.branches
    SET deleted_at = hf.now_us(), deleted_op = p_op_id
    WHERE id = v_branch;
    DELETE FROM hf.merges
    WHERE namespace = p_namespace AND (low_id = v_branch OR high_id = v_branch);
    RETURN true;
END
$$;

-- Frees some rows of a deleted branch that nobody sees any more; True while there is more to do.
CREATE FUNCTION hf.purge_branches(p_namespace text, p_limit bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_branch bigint;
    v_gone bigint;
    v_more bigint;
BEGIN
    SELECT b.id INTO v_branch
    FROM hf.branches AS b
    WHERE b.namespace = p_namespace
      AND b.deleted_at IS NOT NULL
      AND NOT EXISTS (
        SELECT 1
        FROM hf.branches AS c
        WHERE c.namespace = p_namespace AND c.parent_id = b.id
      )
    ORDER BY b.id
    LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM hf.cell_versions
    WHERE ctid = ANY (ARRAY(
        SELECT v.ctid
        FROM hf.cell_versions AS v
        WHERE v.namespace = p_namespace AND v.branch_id = v_branch
        LIMIT p_limit
    ));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM hf.cells
    WHERE ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM hf.cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = v_branch
        LIMIT p_limit
    ));
    GET DIAGNOSTICS v_more = ROW_COUNT;
    IF v_gone < p_limit AND v_more < p_limit THEN
        DELETE FROM hf.branches WHERE id = v_branch;
    END IF;
    RETURN true;
END
$$;

-- Draws a cut of the source, which retention keeps from now on; NULLs when a branch is missing.
CREATE FUNCTION hf.begin_merge(
    p_namespace text, p_source text, p_target text, p_op_id uuid,
    OUT source_id bigint, OUT target_id bigint, OUT source_commit bigint, OUT done boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_low bigint;
    v_high bigint;
BEGIN
    source_id := hf.lock_branch(p_namespace, p_source);
    target_id := hf.branch_id(p_namespace, p_target);
    IF target_id > 0 THEN
        -- Who deletes it must wait until the note is there, and then takes it along. A row lock:
        -- two branches' advisory locks could be waited for in a circle.
        PERFORM 1 FROM hf.branches AS b WHERE b.id = target_id AND b.deleted_at IS NULL FOR SHARE;
        IF NOT FOUND THEN
            target_id := NULL;
        END IF;
    END IF;
    IF source_id IS NULL OR target_id IS NULL THEN
        RETURN;
    END IF;
    v_low := least(source_id, target_id);
    v_high := greatest(source_id, target_id);
    done := EXISTS (
        SELECT 1
        FROM hf.merges AS m
        WHERE m.namespace = p_namespace
          AND m.low_id = v_low
          AND m.high_id = v_high
          AND m.done = 1
          AND m.op_id = p_op_id
    );
    IF done THEN
        RETURN;
    END IF;
    source_commit := nextval('hf.commit_ids');
    INSERT INTO hf.merges AS m
        (namespace, low_id, high_id, done, source_id, source_commit, op_id)
    VALUES (p_namespace, v_low, v_high, 0, source_id, source_commit, p_op_id)
    ON CONFLICT ON CONSTRAINT merges_pkey DO UPDATE
    SET source_id = excluded.source_id,
        source_commit = excluded.source_commit,
        op_id = excluded.op_id;
END
$$;

-- Writes a cell at a version that was decided before, and trims it. The caller has locked the
-- branch, and the cell or the branch exclusively.
CREATE FUNCTION hf.put_version(
    p_namespace text,
    p_branch_id bigint,
    p_name text,
    p_value text,        -- NULL: delete
    p_version bigint,
    p_op_id uuid,
    p_now bigint,
    p_versions bigint,   -- retention, NULL when everything is kept
    p_age_us bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    WITH head AS (
        INSERT INTO hf.cells AS c
            (namespace, branch_id, name, version, commit_id, updated_at, deleted, feed_xid)
        SELECT
            p_namespace, p_branch_id, p_name, p_version, nextval('hf.commit_ids'),
            greatest(p_now, i.updated_at), p_value IS NULL, pg_current_xact_id()
        FROM hf.inherited_cell(p_namespace, p_branch_id, p_name) AS i
        ON CONFLICT (namespace, branch_id, name) DO UPDATE
        SET version = excluded.version,
            commit_id = excluded.commit_id,
            -- Never back, also when the clock was.
            updated_at = greatest(c.updated_at, excluded.updated_at),
            deleted = excluded.deleted,
            feed_xid = greatest(c.feed_xid, excluded.feed_xid)
        RETURNING c.commit_id, c.updated_at, c.feed_xid
    )
    INSERT INTO hf.cell_versions
        (commit_id, namespace, branch_id, name, version, updated_at, op_id, feed_xid, value)
    SELECT
        h.commit_id, p_namespace, p_branch_id, p_name, p_version, h.updated_at, p_op_id,
        h.feed_xid, p_value
    FROM head AS h;
    IF p_versions IS NOT NULL THEN
        PERFORM hf.trim_cells(
            p_namespace, p_branch_id, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE p_now - p_age_us END
        );
    END IF;
END
$$;

-- Writes what a merge decided, and makes its cut the base of the next one. False, and nothing
-- changes, when the target is no longer as it was seen or another merge has come between.
CREATE FUNCTION hf.end_merge(
    p_namespace text,
    p_source_id bigint,
    p_target_id bigint,
    p_source_commit bigint,
    p_op_id uuid,
    p_names text[],
    p_seen bigint[],
    p_write boolean[],
    p_values text[],
    p_new_versions bigint[],
    p_versions bigint,
    p_age_us bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_low bigint := least(p_source_id, p_target_id);
    v_high bigint := greatest(p_source_id, p_target_id);
    v_now bigint;
    v_cell record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace, p_target_id));
    -- Gone with either branch, and replaced by any merge that began later.
    PERFORM 1
    FROM hf.merges AS m
    WHERE m.namespace = p_namespace
      AND m.low_id = v_low
      AND m.high_id = v_high
      AND m.done = 0
      AND m.source_commit = p_source_commit
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN EXISTS (
            SELECT 1
            FROM hf.merges AS m
            WHERE m.namespace = p_namespace
              AND m.low_id = v_low
              AND m.high_id = v_high
              AND m.done = 1
              AND m.op_id = p_op_id
        );
    END IF;
    IF EXISTS (
        SELECT 1
        FROM unnest(p_names, p_seen) AS i (name, seen)
        LEFT JOIN LATERAL (
            SELECT h.commit_id
            FROM hf.cells AS h
            WHERE h.namespace = p_namespace AND h.branch_id = p_target_id AND h.name = i.name
            LIMIT 1
        ) AS c ON true
        WHERE coalesce(c.commit_id, 0) <> i.seen
    ) THEN
        RETURN false;
    END IF;

    v_now := hf.now_us();
    FOR v_cell IN
        SELECT i.name, i.value, i.version
        FROM unnest(p_names, p_write, p_values, p_new_versions) AS i (name, write, value, version)
        WHERE i.write
        ORDER BY i.name COLLATE "C"
    LOOP
        PERFORM hf.put_version(
            p_namespace, p_target_id, v_cell.name, v_cell.value, v_cell.version, p_op_id, v_now,
            p_versions, p_age_us
        );
    END LOOP;

    DELETE FROM hf.merges
    WHERE namespace = p_namespace AND low_id = v_low AND high_id = v_high AND done = 1;
    UPDATE hf.merges
    SET done = 1
    WHERE namespace = p_namespace AND low_id = v_low AND high_id = v_high AND done = 0;
    RETURN true;
END
$$;
