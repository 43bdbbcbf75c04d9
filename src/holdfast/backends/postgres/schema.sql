-- GENERATED from migrations/ by tools/dump_schema.py: add a migration instead.

CREATE SCHEMA holdfast;

CREATE FUNCTION holdfast.cell_write_applies(p_expected bigint, p_live bigint, p_value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((p_expected = '-1'::integer) OR (p_expected = p_live)) AND ((p_value IS NOT NULL) OR (p_live > 0)));

CREATE TABLE holdfast.store_state (
    id integer NOT NULL,
    clock_offset_us bigint NOT NULL,
    CONSTRAINT store_state_id_check CHECK ((id = 1))
);

CREATE FUNCTION holdfast.now_us() RETURNS bigint
    LANGUAGE sql
    RETURN (((date_part('epoch'::text, clock_timestamp()) * (1000000)::double precision))::bigint + (SELECT store_state.clock_offset_us FROM holdfast.store_state WHERE (store_state.id = 1)));

CREATE TABLE holdfast.cell_versions (
    commit_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    branch_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    op_id uuid NOT NULL,
    value text
);

CREATE TABLE holdfast.cells (
    namespace text NOT NULL COLLATE pg_catalog."C",
    branch_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    commit_id bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted boolean NOT NULL
)
WITH (fillfactor='70');

CREATE FUNCTION holdfast.trim_cells(p_namespace text, p_first text, p_last text, p_slice bigint, p_versions bigint, p_cutoff bigint) RETURNS bigint
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    BEGIN ATOMIC
 WITH gone AS (
          DELETE FROM holdfast.cell_versions
           WHERE (cell_versions.ctid = ANY (ARRAY( SELECT v.place
                    FROM (holdfast.cells c
                      CROSS JOIN LATERAL ( SELECT o.ctid AS place,
                             o.commit_id,
                             o.version
                            FROM holdfast.cell_versions o
                           WHERE ((o.namespace = c.namespace) AND (o.branch_id = c.branch_id) AND (o.name = c.name))
                           ORDER BY o.commit_id
                          LIMIT trim_cells.p_slice) v)
                   WHERE ((c.namespace = trim_cells.p_namespace) AND (c.branch_id = 0) AND (c.name >= trim_cells.p_first) AND (c.name <= trim_cells.p_last) AND (v.commit_id < c.commit_id) AND ((v.version <= (c.version - trim_cells.p_versions)) OR (( SELECT n.updated_at
                            FROM holdfast.cell_versions n
                           WHERE ((n.namespace = c.namespace) AND (n.branch_id = c.branch_id) AND (n.name = c.name) AND (n.commit_id > v.commit_id))
                           ORDER BY n.commit_id
                          LIMIT 1) <= trim_cells.p_cutoff))))))
           RETURNING 1 AS "?column?"
         )
  SELECT count(*) AS count
    FROM gone;
END;

CREATE FUNCTION holdfast.write_cell(p_namespace text, p_name text, p_expected bigint, p_value text, p_op_id uuid, p_look_up boolean, p_repeat boolean, p_versions bigint, p_age_us bigint, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
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
            FROM "holdfast".cells AS c
            WHERE c.namespace = p_namespace AND c.branch_id = 0 AND c.name = p_name
            FOR NO KEY UPDATE;
            SELECT v.version INTO v_version
            FROM "holdfast".cell_versions AS v
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
                UPDATE "holdfast".cells AS c
                SET version = CASE WHEN p_value IS NULL THEN c.version ELSE c.version + 1 END,
                    commit_id = nextval('"holdfast".commit_ids'),
                    -- Never back, also when the clock was.
                    updated_at = greatest(c.updated_at, coalesce(p_now, "holdfast".now_us())),
                    deleted = p_value IS NULL
                WHERE c.namespace = p_namespace
                  AND c.branch_id = 0
                  AND c.name = p_name
                  AND "holdfast".cell_write_applies(
                      p_expected, CASE WHEN c.deleted THEN 0 ELSE c.version END, p_value
                  )
                RETURNING c.version, c.commit_id, c.updated_at
            )
            INSERT INTO "holdfast".cell_versions AS v
                (commit_id, namespace, branch_id, name, version, updated_at, op_id, value)
            SELECT h.commit_id, p_namespace, 0, p_name, h.version, h.updated_at, p_op_id, p_value
            FROM head AS h
            RETURNING v.version INTO v_version;
            EXIT WHEN FOUND;
        END IF;

SELECT CASE WHEN c.deleted THEN 0 ELSE c.version END INTO v_live
        FROM "holdfast".cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = 0 AND c.name = p_name;
        IF FOUND THEN
            -- It may have changed since we looked.
            CONTINUE WHEN v_unlocked OR "holdfast".cell_write_applies(p_expected, v_live, p_value);
            RETURN -1 - v_live;
        ELSIF NOT "holdfast".cell_write_applies(p_expected, 0, p_value) THEN
            RETURN -1;
        END IF;
        -- A new cell begins as a deleted one at version 0, for the update to bring to life; if
        -- somebody else was faster, everything is looked at again.
        INSERT INTO "holdfast".cells (namespace, branch_id, name, version, commit_id, updated_at, deleted)
        VALUES (p_namespace, 0, p_name, 0, 0, 0, true)
        ON CONFLICT DO NOTHING;
    END LOOP;

IF p_versions IS NOT NULL THEN
        PERFORM "holdfast".trim_cells(
            p_namespace, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE coalesce(p_now, "holdfast".now_us()) - p_age_us END
        );
    END IF;
    RETURN v_version;
END
$$;

CREATE FUNCTION holdfast.write_cells(p_namespaces text[], p_names text[], p_expected bigint[], p_values text[], p_op_ids uuid[], p_look_up boolean, p_repeat boolean, p_versions bigint, p_age_us bigint) RETURNS TABLE(item bigint, outcome bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();  -- once, so that a set_many is one moment in history too
    v_write record;
BEGIN
    FOR v_write IN
        SELECT i.namespace, i.name, i.expected, i.value, i.op_id, i.item
        FROM unnest(p_namespaces, p_names, p_expected, p_values, p_op_ids)
            WITH ORDINALITY AS i (namespace, name, expected, value, op_id, item)
        ORDER BY i.namespace COLLATE "C", i.name COLLATE "C", i.item
    LOOP
        item := v_write.item;
        outcome := "holdfast".write_cell(
            v_write.namespace, v_write.name, v_write.expected, v_write.value, v_write.op_id,
            p_look_up, p_repeat, p_versions, p_age_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE TABLE holdfast.branches (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    parent_id bigint NOT NULL,
    fork_commit bigint NOT NULL,
    created_at bigint NOT NULL,
    deleted_at bigint
);

ALTER TABLE holdfast.branches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.branches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE SEQUENCE holdfast.commit_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE holdfast.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY holdfast.branches
    ADD CONSTRAINT branches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.cell_versions
    ADD CONSTRAINT cell_versions_pkey PRIMARY KEY (namespace, branch_id, name, commit_id) INCLUDE (updated_at);

ALTER TABLE ONLY holdfast.cells
    ADD CONSTRAINT cells_pkey PRIMARY KEY (namespace, branch_id, name);

ALTER TABLE ONLY holdfast.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY holdfast.store_state
    ADD CONSTRAINT store_state_pkey PRIMARY KEY (id);

CREATE UNIQUE INDEX branches_by_name ON holdfast.branches USING btree (namespace, name) WHERE (deleted_at IS NULL);

CREATE INDEX branches_by_parent ON holdfast.branches USING btree (namespace, parent_id, fork_commit);

CREATE UNIQUE INDEX cell_versions_by_op ON holdfast.cell_versions USING btree (op_id, namespace, branch_id, name);
