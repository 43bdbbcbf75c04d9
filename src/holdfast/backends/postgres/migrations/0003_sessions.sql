-- Sessions: what one remembered is compared with what is there, and then written.

-- The names that one sees who stands on a branch, from p_first on and below p_end.
-- No sequential scans: a plan made while the table was young would stay with a connection.
CREATE FUNCTION hf.visible_names(
    p_namespace text, p_branch_id bigint, p_first text, p_end text
) RETURNS SETOF text
LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    WITH RECURSIVE lineage (level, branch_id, upto) AS (
        SELECT 1, b.parent_id, b.fork_commit
        FROM hf.branches AS b
        WHERE b.id = p_branch_id
        UNION ALL
        SELECT l.level + 1, b.parent_id, b.fork_commit
        FROM lineage AS l
        JOIN hf.branches AS b ON b.id = l.branch_id
    ),
    known (level, name, deleted) AS (
        SELECT 0, c.name, c.deleted
        FROM hf.cells AS c
        WHERE c.namespace = p_namespace
          AND c.branch_id = p_branch_id
          AND c.name >= p_first
          AND c.name < p_end
        UNION ALL
        SELECT l.level, c.name, v.deleted
        FROM lineage AS l
        JOIN hf.cells AS c
          ON c.namespace = p_namespace
         AND c.branch_id = l.branch_id
         AND c.name >= p_first
         AND c.name < p_end
        CROSS JOIN LATERAL (
            SELECT o.value IS NULL AS deleted
            FROM hf.cell_versions AS o
            WHERE o.namespace = p_namespace
              AND o.branch_id = l.branch_id
              AND o.name = c.name
              AND o.commit_id <= l.upto
            ORDER BY o.commit_id DESC
            LIMIT 1
        ) AS v
    )
    SELECT n.name
    FROM (SELECT DISTINCT ON (k.name) k.name, k.deleted FROM known AS k ORDER BY k.name, k.level) AS n
    WHERE NOT n.deleted
$$;

-- One session's commit: 'done', 'known' (this operation was done before), 'no branch', or
-- 'changed' with the names of what is no longer as it was seen.
--
-- Lock order: the branch, then cells by name. The branch is shared with other writers, unless the
-- session rests on absence: a row that is not there cannot be locked, so nobody else may write.
-- A cell that was only read is locked against writers, not against others who have read it.
CREATE FUNCTION hf.commit_session(
    p_namespace text,
    p_branch text,
    p_branch_id bigint,
    p_exclusive boolean,
    p_op_id uuid,
    p_look_up boolean,       -- the operation may have been done before
    p_names text[],
    p_seen bigint[],         -- the branch's own commit, 0 for none
    p_write boolean[],
    p_values text[],
    p_new_versions bigint[],
    p_firsts text[],         -- the ranges that were listed,
    p_ends text[],
    p_found text[],          -- the names in them,
    p_found_in bigint[],     -- and the place of each one's range
    p_versions bigint,
    p_age_us bigint,
    OUT outcome text,
    OUT cells text[]
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_cell record;
    v_commit bigint;
    v_now bigint;
BEGIN
    IF p_exclusive THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace, p_branch_id));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_namespace, p_branch_id));
    END IF;
    IF p_branch_id IS DISTINCT FROM hf.branch_id(p_namespace, p_branch) THEN
        outcome := 'no branch';
        RETURN;
    END IF;

    -- Each in a statement of its own: what it finds must be newer than the lock.
    FOR v_cell IN
        SELECT i.name, i.seen, i.write
        FROM unnest(p_names, p_seen, p_write) AS i (name, seen, write)
        ORDER BY i.name COLLATE "C"
    LOOP
        v_commit := NULL;
        IF v_cell.write THEN
            SELECT c.commit_id INTO v_commit
            FROM hf.cells AS c
            WHERE c.namespace = p_namespace
              AND c.branch_id = p_branch_id
              AND c.name = v_cell.name
            FOR NO KEY UPDATE;
        ELSE
            SELECT c.commit_id INTO v_commit
            FROM hf.cells AS c
            WHERE c.namespace = p_namespace
              AND c.branch_id = p_branch_id
              AND c.name = v_cell.name
            FOR SHARE;
        END IF;
        IF coalesce(v_commit, 0) <> v_cell.seen THEN
            cells := cells || v_cell.name;
        END IF;
    END LOOP;
    IF p_look_up AND EXISTS (
        SELECT 1
        FROM hf.cell_versions AS v
        WHERE v.op_id = p_op_id AND v.namespace = p_namespace AND v.branch_id = p_branch_id
    ) THEN
        outcome := 'known';
        RETURN;
    END IF;
    IF cardinality(p_firsts) > 0 THEN
        SELECT cells || array_agg(coalesce(f.name, n.name)) INTO cells
        FROM (
            SELECT r.item, v.name
            FROM unnest(p_firsts, p_ends) WITH ORDINALITY AS r (first, after_last, item)
            CROSS JOIN LATERAL hf.visible_names(p_namespace, p_branch_id, r.first, r.after_last)
                AS v (name)
        ) AS n
        FULL JOIN unnest(p_found_in, p_found) AS f (item, name)
          ON f.item = n.item AND f.name = n.name COLLATE "C"
        WHERE f.name IS NULL OR n.name IS NULL;
    END IF;
    IF cardinality(cells) > 0 THEN
        outcome := 'changed';
        RETURN;
    END IF;

    v_now := hf.now_us();
    FOR v_cell IN
        SELECT i.name, i.value, i.version
        FROM unnest(p_names, p_write, p_values, p_new_versions) AS i (name, write, value, version)
        WHERE i.write
        ORDER BY i.name COLLATE "C"
    LOOP
        PERFORM hf.put_version(
            p_namespace, p_branch_id, v_cell.name, v_cell.value, v_cell.version, p_op_id, v_now,
            p_versions, p_age_us
        );
    END LOOP;
    outcome := 'done';
END
$$;
