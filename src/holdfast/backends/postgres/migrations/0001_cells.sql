-- Keys are COLLATE "C": byte order, as on every other engine, and prefix ranges that are exact.

CREATE TABLE hf.store_state (
    id integer PRIMARY KEY CHECK (id = 1),
    clock_offset_us bigint NOT NULL
);

INSERT INTO hf.store_state (id, clock_offset_us) VALUES (1, 0);

CREATE SEQUENCE hf.commit_ids;

-- Transaction ids are a cluster's own. Restored into another one, the log goes on in a new epoch:
-- commit ids up to last_commit are the old cluster's.
CREATE TABLE hf.epochs (
    epoch bigint PRIMARY KEY,
    first_commit bigint NOT NULL,
    last_commit bigint,  -- NULL: this is the present one
    cluster text         -- NULL: the server does not tell
);

-- `main` has no row: it is branch 0 of every namespace.
CREATE TABLE hf.branches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    parent_id bigint NOT NULL,
    fork_commit bigint NOT NULL,
    created_at bigint NOT NULL,
    op_id uuid NOT NULL,
    -- A deleted branch stays for as long as others see its cells.
    deleted_at bigint,
    deleted_op uuid
);

CREATE UNIQUE INDEX branches_by_name ON hf.branches (namespace, name) WHERE deleted_at IS NULL;

CREATE INDEX branches_by_parent ON hf.branches (namespace, parent_id, fork_commit);

CREATE UNIQUE INDEX branches_by_op ON hf.branches (namespace, op_id);

-- Small rows with room on the page: no indexed column changes, so updates stay in place (HOT).
CREATE TABLE hf.cells (
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    commit_id bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted boolean NOT NULL,
    feed_xid xid8 NOT NULL DEFAULT '0',
    PRIMARY KEY (namespace, branch_id, name)
) WITH (fillfactor = 70);

-- One index serves history, time travel and the newest version.
CREATE TABLE hf.cell_versions (
    commit_id bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    op_id uuid NOT NULL,
    -- The transaction that wrote it, or that of the version before if that is a later one: a
    -- transaction that began early may write late, and a cell's versions must stay in order.
    feed_xid xid8 NOT NULL,
    -- Retention has dropped it, but another branch still sees it.
    hidden boolean NOT NULL DEFAULT false,
    value text,
    PRIMARY KEY (namespace, branch_id, name, commit_id) INCLUDE (updated_at)
);

-- Unique: after a lost connection the store repeats its statement, and the server may still be
-- about to run the first one. Whichever comes second must not take effect.
CREATE UNIQUE INDEX cell_versions_by_op
ON hf.cell_versions (op_id, namespace, branch_id, name);

-- The log of changes: readers stop below the oldest transaction that is still open.
CREATE INDEX cell_versions_by_feed ON hf.cell_versions (namespace, feed_xid, commit_id);

-- Where transaction ids come from: the cluster and its timeline. NULL if we may not know, and on
-- a standby, which cannot begin an epoch. The timeline is that of the log: until its first checkpoint
-- the control file of a promoted server still has the old one.
CREATE FUNCTION hf.cluster() RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN format(
        '%s/%s',
        (SELECT s.system_identifier FROM pg_control_system() AS s),
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
    );
EXCEPTION
    WHEN insufficient_privilege OR object_not_in_prerequisite_state THEN RETURN NULL;
END
$$;

INSERT INTO hf.epochs (epoch, first_commit, last_commit, cluster)
VALUES (1, 0, NULL, hf.cluster());

-- Begins a new epoch if this is not the cluster of the last one; False if it is.
CREATE FUNCTION hf.begin_epoch() RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_cluster text := hf.cluster();
    v_epoch bigint;
    v_commit bigint;
BEGIN
    -- Waits for writers in flight and keeps new ones out: all commit ids drawn so far are
    -- committed then.
    LOCK TABLE hf.cell_versions, hf.record_changes, hf.messages IN SHARE ROW EXCLUSIVE MODE;
    SELECT e.epoch INTO v_epoch
    FROM hf.epochs AS e
    WHERE e.last_commit IS NULL AND e.cluster <> v_cluster;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_commit := nextval('hf.commit_ids');
    UPDATE hf.epochs SET last_commit = v_commit WHERE epoch = v_epoch;
    INSERT INTO hf.epochs (epoch, first_commit, last_commit, cluster)
    VALUES (v_epoch + 1, v_commit + 1, NULL, v_cluster);
    -- Ids that this cluster has yet to give out would hold new versions back until then.
    UPDATE hf.cells SET feed_xid = '0' WHERE feed_xid >= pg_snapshot_xmax(pg_current_snapshot());
    RETURN true;
END
$$;

-- The store's clock. Not now(): that stands still inside a transaction.
CREATE FUNCTION hf.now_us() RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    + (SELECT clock_offset_us FROM hf.store_state WHERE id = 1);

-- The branch's id, NULL when there is none of that name.
CREATE FUNCTION hf.branch_id(p_namespace text, p_branch text) RETURNS bigint
LANGUAGE sql STABLE
RETURN CASE WHEN p_branch = 'main' THEN 0 ELSE (
    SELECT b.id
    FROM hf.branches AS b
    WHERE b.namespace = p_namespace AND b.name = p_branch AND b.deleted_at IS NULL
) END;

-- The rule of facets/cells.py: may a write that expects this be done to a cell at that version?
CREATE FUNCTION hf.cell_write_applies(
    p_expected bigint,   -- -1: any version, 0: absent
    p_live bigint,       -- 0: absent or deleted
    p_value text         -- NULL: delete
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (p_expected = -1 OR p_expected = p_live) AND (p_value IS NOT NULL OR p_live > 0);

-- A cell as it was where the branch begins; version 0 and deleted if there was none.
CREATE FUNCTION hf.inherited_cell(
    p_namespace text, p_branch_id bigint, p_name text,
    OUT version bigint, OUT updated_at bigint, OUT deleted boolean
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_branch bigint := p_branch_id;
    v_upto bigint;
BEGIN
    version := 0;
    updated_at := 0;
    deleted := true;
    WHILE v_branch > 0 LOOP
        SELECT b.parent_id, b.fork_commit INTO v_branch, v_upto
        FROM hf.branches AS b
        WHERE b.id = v_branch;
        SELECT v.version, v.updated_at, v.value IS NULL INTO version, updated_at, deleted
        FROM hf.cell_versions AS v
        WHERE v.namespace = p_namespace
          AND v.branch_id = v_branch
          AND v.name = p_name
          AND v.commit_id <= v_upto
        ORDER BY v.commit_id DESC
        LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
        version := 0;
        updated_at := 0;
        deleted := true;
    END LOOP;
END
$$;

-- One cell write: the new version. -1 - live when it was refused, NULL when nobody can tell, the
-- smallest number when there is no such branch. One number, because a row would be handed over by
-- way of a temporary table. (trim_cells is in 0002: it must know what other branches see.)
--
-- A function and not one statement, because a statement sees the snapshot of its start: what
-- must be true after a row's lock was waited for has to be read by a later statement.
CREATE FUNCTION hf.write_cell(
    p_namespace text,
    p_branch text,
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
    v_branch bigint := 0;
    v_version bigint;
    v_updated_at bigint := 0;
    v_deleted boolean := true;
    v_live bigint;
BEGIN
    IF p_branch <> 'main' THEN
        v_branch := hf.branch_id(p_namespace, p_branch);
        IF v_branch IS NULL THEN
            RETURN -9223372036854775808;
        END IF;
    END IF;

    -- Shared among writers. A fork takes it exclusively: only then are all commit ids
    -- below its own committed. Hence before nextval(). The seed is the branch.
    -- An assignment, because PERFORM would run a query.
    v_locked := pg_advisory_xact_lock_shared(hashtextextended(p_namespace, v_branch))::text;

    -- It may have been deleted while the lock was waited for.
    IF v_branch > 0 AND v_branch IS DISTINCT FROM hf.branch_id(p_namespace, p_branch) THEN
        RETURN -9223372036854775808;
    END IF;

    LOOP
        IF p_look_up THEN
            -- The lock first: whoever has it may be the first try.
            SELECT c.version INTO v_locked_at
            FROM hf.cells AS c
            WHERE c.namespace = p_namespace AND c.branch_id = v_branch AND c.name = p_name
            FOR NO KEY UPDATE;
            SELECT v.version INTO v_version
            FROM hf.cell_versions AS v
            WHERE v.op_id = p_op_id
              AND v.namespace = p_namespace
              AND v.branch_id = v_branch
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
                    deleted = p_value IS NULL,
                    feed_xid = greatest(c.feed_xid, pg_current_xact_id())
                WHERE c.namespace = p_namespace
                  AND c.branch_id = v_branch
                  AND c.name = p_name
                  AND hf.cell_write_applies(
                      p_expected, CASE WHEN c.deleted THEN 0 ELSE c.version END, p_value
                  )
                RETURNING c.version, c.commit_id, c.updated_at, c.feed_xid
            )
            INSERT INTO hf.cell_versions AS v
                (commit_id, namespace, branch_id, name, version, updated_at, op_id, feed_xid, value)
            SELECT
                h.commit_id, p_namespace, v_branch, p_name, h.version, h.updated_at, p_op_id,
                h.feed_xid, p_value
            FROM head AS h
            RETURNING v.version INTO v_version;
            EXIT WHEN FOUND;
        END IF;

        SELECT CASE WHEN c.deleted THEN 0 ELSE c.version END INTO v_live
        FROM hf.cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = v_branch AND c.name = p_name;
        IF FOUND THEN
            -- It may have changed since we looked.
            CONTINUE WHEN v_unlocked OR hf.cell_write_applies(p_expected, v_live, p_value);
            RETURN -1 - v_live;
        END IF;
        -- A new cell begins as a deleted one at version 0, or on a branch as its parent's: for
        -- the update to bring to life. If somebody else was faster, all is looked at again.
        v_version := 0;
        IF v_branch > 0 THEN
            SELECT i.version, i.updated_at, i.deleted INTO v_version, v_updated_at, v_deleted
            FROM hf.inherited_cell(p_namespace, v_branch, p_name) AS i;
        END IF;
        v_live := CASE WHEN v_deleted THEN 0 ELSE v_version END;
        IF NOT hf.cell_write_applies(p_expected, v_live, p_value) THEN
            RETURN -1 - v_live;
        END IF;
        INSERT INTO hf.cells (namespace, branch_id, name, version, commit_id, updated_at, deleted)
        VALUES (p_namespace, v_branch, p_name, v_version, 0, v_updated_at, v_deleted)
        ON CONFLICT DO NOTHING;
    END LOOP;

    IF p_versions IS NOT NULL THEN
        PERFORM hf.trim_cells(
            p_namespace, v_branch, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE coalesce(p_now, hf.now_us()) - p_age_us END
        );
    END IF;
    RETURN v_version;
END
$$;

-- A batch of cell writes, answered by their place in it.
--
-- Rows are locked in key order, so two batches never wait for each other in a circle. (Branches
-- by name and not by id; each is locked before its rows, so any order will do.) Writes to
-- the same cell follow each other in the order of the batch, each on the result of the last.
CREATE FUNCTION hf.write_cells(
    p_namespaces text[],
    p_branches text[],
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
        SELECT i.namespace, i.branch, i.name, i.expected, i.value, i.op_id, i.item
        FROM unnest(p_namespaces, p_branches, p_names, p_expected, p_values, p_op_ids)
            WITH ORDINALITY AS i (namespace, branch, name, expected, value, op_id, item)
        ORDER BY i.namespace COLLATE "C", i.branch COLLATE "C", i.name COLLATE "C", i.item
    LOOP
        item := v_write.item;
        outcome := hf.write_cell(
            v_write.namespace, v_write.branch, v_write.name, v_write.expected, v_write.value,
            v_write.op_id, p_look_up, p_repeat, p_versions, p_age_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;
