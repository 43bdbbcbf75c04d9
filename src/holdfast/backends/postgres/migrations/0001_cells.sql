-- Keys are COLLATE "C": byte order, as on every other engine, and prefix ranges that are exact.

CREATE TABLE hf.store_state (
    id integer PRIMARY KEY CHECK (id = 1),
    clock_offset_us bigint NOT NULL
);

INSERT INTO hf.store_state (id, clock_offset_us) VALUES (1, 0);

CREATE SEQUENCE hf.commit_ids;

-- `main` has no row: it is branch 0 of every namespace.
CREATE TABLE hf.branches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    parent_id bigint NOT NULL,
    fork_commit bigint NOT NULL,
    created_at bigint NOT NULL,
    deleted_at bigint
);

CREATE UNIQUE INDEX branches_by_name ON hf.branches (namespace, name) WHERE deleted_at IS NULL;

CREATE INDEX branches_by_parent ON hf.branches (namespace, parent_id, fork_commit);

-- Small rows with room on the page: no indexed column changes, so updates stay in place (HOT).
CREATE TABLE hf.cells (
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    commit_id bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted boolean NOT NULL,
    PRIMARY KEY (namespace, branch_id, name)
) WITH (fillfactor = 70);

-- One index serves history, time travel and the newest version, so a write keeps two, not three.
CREATE TABLE hf.cell_versions (
    commit_id bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    op_id uuid NOT NULL,
    value text,
    PRIMARY KEY (namespace, branch_id, name, commit_id) INCLUDE (updated_at)
);

-- Unique: after a lost connection the store repeats its statement, and the server may still be
-- about to run the first one. Whichever comes second must not take effect.
CREATE UNIQUE INDEX cell_versions_by_op
ON hf.cell_versions (op_id, namespace, branch_id, name);

-- The store's clock. Not now(): that stands still inside a transaction.
CREATE FUNCTION hf.now_us() RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    + (SELECT clock_offset_us FROM hf.store_state WHERE id = 1);

-- Drops versions that retention does not keep, out of the oldest few of each cell.
-- A version's time ends where its successor's begins: it goes when that one is old enough.
-- No sequential scans: a plan made while the table was young would stay with a connection.
CREATE FUNCTION hf.trim_cells(
    p_namespace text,
    p_first text,
    p_last text,
    p_slice bigint,
    p_versions bigint,
    p_cutoff bigint
) RETURNS bigint
LANGUAGE sql VOLATILE
SET enable_seqscan = off
BEGIN ATOMIC
    WITH gone AS (
        DELETE FROM hf.cell_versions
        -- By place: versions are never updated, so they stay where the query found them.
        WHERE ctid = ANY (ARRAY(
            SELECT v.place
            FROM hf.cells AS c
            CROSS JOIN LATERAL (
                SELECT o.ctid AS place, o.commit_id, o.version
                FROM hf.cell_versions AS o
                WHERE o.namespace = c.namespace
                  AND o.branch_id = c.branch_id
                  AND o.name = c.name
                ORDER BY o.commit_id
                LIMIT p_slice
            ) AS v
            WHERE c.namespace = p_namespace
              AND c.branch_id = 0
              AND c.name >= p_first
              AND c.name <= p_last
              AND v.commit_id < c.commit_id
              AND (
                v.version <= c.version - p_versions
                OR (
                    SELECT n.updated_at
                    FROM hf.cell_versions AS n
                    WHERE n.namespace = c.namespace
                      AND n.branch_id = c.branch_id
                      AND n.name = c.name
                      AND n.commit_id > v.commit_id
                    ORDER BY n.commit_id
                    LIMIT 1
                ) <= p_cutoff
              )
        ))
        RETURNING 1
    )
    SELECT count(*) FROM gone;
END;

-- The rule of facets/cells.py: may a write that expects this be done to a cell at that version?
CREATE FUNCTION hf.cell_write_applies(
    p_expected bigint,   -- -1: any version, 0: absent
    p_live bigint,       -- 0: absent or deleted
    p_value text         -- NULL: delete
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (p_expected = -1 OR p_expected = p_live) AND (p_value IS NOT NULL OR p_live > 0);

-- One cell write: the new version. -1 - live when it was refused, NULL when nobody can tell.
-- One number, because a row would be handed over by way of a temporary table.
--
-- A function and not one statement, because a statement sees the snapshot of its start: what
-- must be true after a row's lock was waited for has to be read by a later statement.
CREATE FUNCTION hf.write_cell(
    p_namespace text,
    p_name text,
    p_expected bigint,
    p_value text,
    p_op_id uuid,
    p_look_up boolean,   -- the operation may have been done before
    p_repeat boolean,    -- the store's own repeat: see below
    p_versions bigint,   -- retention, NULL when everything is kept
    p_age_us bigint,
    p_now bigint         -- the batch's time; NULL for a write alone
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_locked text;
    v_locked_at bigint;
    v_unlocked boolean;
    v_version bigint;
    v_live bigint;
BEGIN
    -- Shared among writers. A fork will take it exclusively: only then are all commit ids
    -- below its own committed. Hence before nextval(). The seed is the branch.
    -- An assignment, because PERFORM would run a query.
    v_locked := pg_advisory_xact_lock_shared(hashtextextended(p_namespace, 0))::text;

    LOOP
        IF p_look_up THEN
            -- The lock first: whoever has it may be the first try.
            SELECT c.version INTO v_locked_at
            FROM hf.cells AS c
            WHERE c.namespace = p_namespace AND c.branch_id = 0 AND c.name = p_name
            FOR NO KEY UPDATE;
            SELECT v.version INTO v_version
            FROM hf.cell_versions AS v
            WHERE v.op_id = p_op_id
              AND v.namespace = p_namespace
              AND v.branch_id = 0
              AND v.name = p_name;
            IF FOUND THEN
                RETURN v_version;
            END IF;
            -- Retention may have dropped the version that the first try made.
            IF p_repeat AND p_versions IS NOT NULL AND v_locked_at > 1 THEN
                RETURN NULL;
            END IF;
        END IF;

        -- A row that did not exist could not be locked: the first try may have made it since.
        v_unlocked := p_look_up AND v_locked_at IS NULL;
        IF NOT v_unlocked THEN
            -- The update waits for the row's lock and then looks again at what it finds there.
            WITH head AS (
                UPDATE hf.cells AS c
                SET version = CASE WHEN p_value IS NULL THEN c.version ELSE c.version + 1 END,
                    commit_id = nextval('hf.commit_ids'),
                    -- Never back, also when the clock was.
                    updated_at = greatest(c.updated_at, coalesce(p_now, hf.now_us())),
                    deleted = p_value IS NULL
                WHERE c.namespace = p_namespace
                  AND c.branch_id = 0
                  AND c.name = p_name
                  AND hf.cell_write_applies(
                      p_expected, CASE WHEN c.deleted THEN 0 ELSE c.version END, p_value
                  )
                RETURNING c.version, c.commit_id, c.updated_at
            )
            INSERT INTO hf.cell_versions AS v
                (commit_id, namespace, branch_id, name, version, updated_at, op_id, value)
            SELECT h.commit_id, p_namespace, 0, p_name, h.version, h.updated_at, p_op_id, p_value
            FROM head AS h
            RETURNING v.version INTO v_version;
            EXIT WHEN FOUND;
        END IF;

        SELECT CASE WHEN c.deleted THEN 0 ELSE c.version END INTO v_live
        FROM hf.cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = 0 AND c.name = p_name;
        IF FOUND THEN
            -- It may have changed since we looked.
            CONTINUE WHEN v_unlocked OR hf.cell_write_applies(p_expected, v_live, p_value);
            RETURN -1 - v_live;
        ELSIF NOT hf.cell_write_applies(p_expected, 0, p_value) THEN
            RETURN -1;
        END IF;
        -- A new cell begins as a deleted one at version 0, for the update to bring to life; if
        -- somebody else was faster, everything is looked at again.
        INSERT INTO hf.cells (namespace, branch_id, name, version, commit_id, updated_at, deleted)
        VALUES (p_namespace, 0, p_name, 0, 0, 0, true)
        ON CONFLICT DO NOTHING;
    END LOOP;

    IF p_versions IS NOT NULL THEN
        PERFORM hf.trim_cells(
            p_namespace, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE coalesce(p_now, hf.now_us()) - p_age_us END
        );
    END IF;
    RETURN v_version;
END
$$;

-- A batch of cell writes, answered by their place in it.
--
-- Rows are locked in key order, so two batches never wait for each other in a circle. Writes to
-- the same cell follow each other in the order of the batch, each on the result of the last.
CREATE FUNCTION hf.write_cells(
    p_namespaces text[],
    p_names text[],
    p_expected bigint[],
    p_values text[],
    p_op_ids uuid[],
    p_look_up boolean,
    p_repeat boolean,
    p_versions bigint,
    p_age_us bigint
) RETURNS TABLE (item bigint, outcome bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();  -- once, so that a set_many is one moment in history too
    v_write record;
BEGIN
    FOR v_write IN
        SELECT i.namespace, i.name, i.expected, i.value, i.op_id, i.item
        FROM unnest(p_namespaces, p_names, p_expected, p_values, p_op_ids)
            WITH ORDINALITY AS i (namespace, name, expected, value, op_id, item)
        ORDER BY i.namespace COLLATE "C", i.name COLLATE "C", i.item
    LOOP
        item := v_write.item;
        outcome := hf.write_cell(
            v_write.namespace, v_write.name, v_write.expected, v_write.value, v_write.op_id,
            p_look_up, p_repeat, p_versions, p_age_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;
