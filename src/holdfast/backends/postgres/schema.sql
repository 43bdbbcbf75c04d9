-- GENERATED from migrations/ by tools/dump_schema.py: add a migration instead.

CREATE SCHEMA holdfast;

CREATE TYPE holdfast.appended AS (
	run_seq bigint,
	known_type text,
	known_data text,
	known_more text,
	last_seq bigint,
	twice uuid
);

CREATE TYPE holdfast.new_event AS (
	key text,
	event_id uuid,
	event_type text,
	emitted_at bigint,
	data text,
	more text
);

CREATE FUNCTION holdfast.answer_deliveries(p_namespaces text[], p_groups bigint[], p_xids text[], p_commits bigint[], p_numbers bigint[], p_due_us bigint[]) RETURNS TABLE(item bigint, took_effect boolean)
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();
    v_answer record;
BEGIN
    FOR v_answer IN
        SELECT i.item, g.id, i.xid::xid8 AS feed_xid, i.commit_id, i.number, i.due_us
        FROM unnest(p_namespaces, p_groups, p_xids, p_commits, p_numbers, p_due_us)
            WITH ORDINALITY AS i (namespace, group_id, xid, commit_id, number, due_us, item)
        LEFT JOIN "holdfast".groups AS g ON g.namespace = i.namespace AND g.id = i.group_id
        ORDER BY g.id, i.xid::xid8, i.commit_id, i.item
    LOOP
        IF v_answer.due_us < 0 THEN
            DELETE FROM "holdfast".deliveries AS d
            WHERE d.group_id = v_answer.id
              AND d.feed_xid = v_answer.feed_xid
              AND d.commit_id = v_answer.commit_id
              AND d.number = v_answer.number
              AND d.due_at IS NOT NULL;
        ELSE
            UPDATE "holdfast".deliveries AS d
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

CREATE TABLE holdfast.runs (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    last_seq bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    gone boolean DEFAULT false NOT NULL
)
WITH (fillfactor='70');

CREATE FUNCTION holdfast.append_call(p_run holdfast.runs, p_events holdfast.new_event[], p_expected bigint, p_now bigint) RETURNS SETOF holdfast.appended
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_seq bigint := p_run.last_seq;
    v_xid xid8 := greatest(pg_current_xact_id(), p_run.feed_xid);
    v_event "holdfast".new_event;
    v_known record;
    v_twice boolean;
    v_other uuid;
BEGIN
    FOREACH v_event IN ARRAY p_events LOOP
        SELECT e.run_seq, e.event_type, e.data, e.more INTO v_known
        FROM "holdfast".events AS e
        WHERE e.run = p_run.id AND e.key = v_event.key;
        IF FOUND THEN
            RETURN NEXT ROW(
                v_known.run_seq, v_known.event_type, v_known.data, v_known.more, NULL, NULL
            )::"holdfast".appended;
            CONTINUE;
        END IF;
        v_twice := EXISTS (
            SELECT 1 FROM "holdfast".events AS e
            WHERE e.run = p_run.id AND e.event_id = v_event.event_id
        );
        IF v_twice OR p_expected <> p_run.last_seq THEN
            IF v_seq > p_run.last_seq THEN
                RAISE EXCEPTION USING ERRCODE = 'HF001', DETAIL = v_event.event_id::text;
            END IF;
            -- An event of the call that is known by its id is told before an unmet expectation.
            SELECT n.event_id INTO v_other
            FROM unnest(p_events) WITH ORDINALITY AS n
                (key, event_id, event_type, emitted_at, data, more, item)
            WHERE NOT EXISTS (
                SELECT 1 FROM "holdfast".events AS e WHERE e.run = p_run.id AND e.key = n.key
            ) AND NOT EXISTS (
                SELECT 1 FROM unnest(p_events[:n.item - 1]) AS o WHERE o.key = n.key
            ) AND (
                EXISTS (
                    SELECT 1 FROM "holdfast".events AS e
                    WHERE e.run = p_run.id AND e.event_id = n.event_id
                ) OR EXISTS (
                    SELECT 1 FROM unnest(p_events[:n.item - 1]) AS o
                    WHERE o.event_id = n.event_id AND o.key <> n.key
                )
            )
            ORDER BY n.item
            LIMIT 1;
            RETURN NEXT ROW(NULL, NULL, NULL, NULL, p_run.last_seq, v_other)::"holdfast".appended;
            RETURN;
        END IF;
        v_seq := v_seq + 1;
        INSERT INTO "holdfast".events (
            namespace, feed_xid, commit_id, run, run_seq, key, event_id, event_type,
            emitted_at, persisted_at, data, more
        )
        VALUES (
            p_run.namespace, v_xid, nextval('"holdfast".commit_ids'), p_run.id, v_seq, v_event.key,
            v_event.event_id, v_event.event_type, coalesce(v_event.emitted_at, p_now), p_now,
            v_event.data, v_event.more
        );
        RETURN NEXT ROW(v_seq, NULL, NULL, NULL, NULL, NULL)::"holdfast".appended;
    END LOOP;
    IF v_seq > p_run.last_seq THEN
        UPDATE "holdfast".runs AS r
        SET last_seq = v_seq, feed_xid = v_xid
        WHERE r.id = p_run.id;
    END IF;
END
$$;

CREATE FUNCTION holdfast.append_events(p_calls bigint[], p_namespaces text[], p_run_ids text[], p_expected bigint[], p_keys text[], p_event_ids uuid[], p_types text[], p_emitted bigint[], p_data text[], p_more text[]) RETURNS TABLE(call bigint, answer holdfast.appended)
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint;
    v_call record;
    v_run "holdfast".runs;
    v_twice text;
BEGIN
    -- Also what is there already: one statement locks all of them, in the order of append_new.
    INSERT INTO "holdfast".runs AS r (namespace, run_id, last_seq, feed_xid)
    SELECT d.namespace, d.run_id, 0, pg_current_xact_id()
    FROM (
        SELECT DISTINCT i.namespace, i.run_id
        FROM unnest(p_namespaces, p_run_ids) AS i (namespace, run_id)
    ) AS d
    ORDER BY d.namespace COLLATE "C", d.run_id COLLATE "C"
    ON CONFLICT (namespace, run_id) WHERE NOT gone DO UPDATE SET last_seq = r.last_seq;
    v_now := "holdfast".now_us();

FOR v_call IN
        SELECT
            i.call, min(i.namespace) AS namespace, min(i.run_id) AS run_id,
            min(i.expected) AS expected,
            array_agg(
                ROW(i.key, i.event_id, i.event_type, i.emitted_at, i.data, i.more)::"holdfast".new_event
                ORDER BY i.item
            ) AS events
        FROM unnest(
            p_calls, p_namespaces, p_run_ids, p_expected, p_keys, p_event_ids, p_types, p_emitted,
            p_data, p_more
        ) WITH ORDINALITY AS i (
            call, namespace, run_id, expected, key, event_id, event_type, emitted_at, data, more,
            item
        )
        GROUP BY i.call
        ORDER BY i.call
    LOOP
        call := v_call.call;
        SELECT * INTO v_run
        FROM "holdfast".runs AS o
        WHERE o.namespace = v_call.namespace AND o.run_id = v_call.run_id AND NOT o.gone;
        IF cardinality(v_call.events) = 1 THEN
            FOR answer IN
                SELECT * FROM "holdfast".append_call(v_run, v_call.events, v_call.expected, v_now)
            LOOP
                RETURN NEXT;
            END LOOP;
            CONTINUE;
        END IF;
        BEGIN
            RETURN QUERY
            SELECT v_call.call, a::"holdfast".appended
            FROM "holdfast".append_call(v_run, v_call.events, v_call.expected, v_now) AS a;
        EXCEPTION WHEN SQLSTATE 'HF001' THEN
            GET STACKED DIAGNOSTICS v_twice = PG_EXCEPTION_DETAIL;
            answer := ROW(NULL, NULL, NULL, NULL, v_run.last_seq, v_twice::uuid)::"holdfast".appended;
            RETURN NEXT;
        END;
    END LOOP;
END
$$;

CREATE FUNCTION holdfast.append_new(p_namespaces text[], p_run_ids text[], p_expected bigint[], p_keys text[], p_event_ids uuid[], p_types text[], p_emitted bigint[], p_data text[], p_more text[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_numbers bigint[];
    v_elsewhere boolean;
BEGIN
    WITH items AS MATERIALIZED (
        SELECT
            i.*,
            row_number() OVER (PARTITION BY i.namespace, i.run_id ORDER BY i.item DESC) - 1
                AS followers
        FROM unnest(
            p_namespaces, p_run_ids, p_expected, p_keys, p_event_ids, p_types, p_emitted, p_data,
            p_more
        ) WITH ORDINALITY AS i (
            namespace, run_id, expected, key, event_id, event_type, emitted_at, data, more, item
        )
    ),
    heads AS (
        INSERT INTO "holdfast".runs AS r (namespace, run_id, last_seq, feed_xid)
        SELECT i.namespace, i.run_id, count(*), pg_current_xact_id()
        FROM items AS i
        GROUP BY i.namespace, i.run_id
        ORDER BY i.namespace COLLATE "C", i.run_id COLLATE "C"
        ON CONFLICT (namespace, run_id) WHERE NOT gone DO UPDATE
        SET last_seq = r.last_seq + excluded.last_seq,
            feed_xid = greatest(r.feed_xid, excluded.feed_xid)
        RETURNING r.id, r.namespace, r.run_id, r.last_seq, r.feed_xid
    ),
    clock AS MATERIALIZED (
        -- Once all runs are locked: later numbers have later times.
        SELECT "holdfast".now_us() AS now FROM (SELECT count(*) FROM heads) AS locked
    ),
    numbered AS MATERIALIZED (
        SELECT i.*, h.id AS run, h.feed_xid, h.last_seq - i.followers AS run_seq
        FROM items AS i
        JOIN heads AS h ON h.namespace = i.namespace AND h.run_id = i.run_id
        ORDER BY i.item
    ),
    added AS (
        INSERT INTO "holdfast".events (
            namespace, feed_xid, commit_id, run, run_seq, key, event_id, event_type,
            emitted_at, persisted_at, data, more
        )
        SELECT
            n.namespace, n.feed_xid, nextval('"holdfast".commit_ids'), n.run, n.run_seq, n.key, n.event_id,
            n.event_type, coalesce(n.emitted_at, c.now), c.now, n.data, n.more
        FROM clock AS c
        CROSS JOIN numbered AS n
    )
    SELECT array_agg(n.run_seq ORDER BY n.item), bool_or(n.run_seq - 1 <> n.expected)
    INTO v_numbers, v_elsewhere
    FROM numbered AS n;
    IF v_elsewhere THEN
        RAISE EXCEPTION USING ERRCODE = 'HF002';
    END IF;
    RETURN v_numbers;
EXCEPTION WHEN unique_violation OR SQLSTATE 'HF002' THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION holdfast.begin_epoch() RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_cluster text := "holdfast".cluster();
    v_epoch bigint;
    v_commit bigint;
    v_first_unused xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    -- Waits for writers in flight and keeps new ones out: all commit ids drawn so far are
    -- committed then.
    LOCK TABLE "holdfast".cell_versions, "holdfast".record_changes, "holdfast".messages, "holdfast".events
    IN SHARE ROW EXCLUSIVE MODE;
    SELECT e.epoch INTO v_epoch
    FROM "holdfast".epochs AS e
    WHERE e.last_commit IS NULL AND e.cluster <> v_cluster;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_commit := nextval('"holdfast".commit_ids');
    UPDATE "holdfast".epochs SET last_commit = v_commit WHERE epoch = v_epoch;
    INSERT INTO "holdfast".epochs (epoch, first_commit, last_commit, cluster)
    VALUES (v_epoch + 1, v_commit + 1, NULL, v_cluster);
    -- Ids that this cluster has yet to give out would hold what is new back until then.
    UPDATE "holdfast".cells SET feed_xid = '0' WHERE feed_xid >= v_first_unused;
    UPDATE "holdfast".runs SET feed_xid = '0' WHERE feed_xid >= v_first_unused;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.begin_merge(p_namespace text, p_source text, p_target text, p_op_id uuid, OUT source_id bigint, OUT target_id bigint, OUT source_commit bigint, OUT done boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_low bigint;
    v_high bigint;
BEGIN
    source_id := "holdfast".lock_branch(p_namespace, p_source);
    target_id := "holdfast".branch_id(p_namespace, p_target);
    IF target_id > 0 THEN
        -- Who deletes it must wait until the note is there, and then takes it along. A row lock:
        -- two branches' advisory locks could be waited for in a circle.
        PERFORM 1 FROM "holdfast".branches AS b WHERE b.id = target_id AND b.deleted_at IS NULL FOR SHARE;
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
        FROM "holdfast".merges AS m
        WHERE m.namespace = p_namespace
          AND m.low_id = v_low
          AND m.high_id = v_high
          AND m.done = 1
          AND m.op_id = p_op_id
    );
    IF done THEN
        RETURN;
    END IF;
    source_commit := nextval('"holdfast".commit_ids');
    INSERT INTO "holdfast".merges AS m
        (namespace, low_id, high_id, done, source_id, source_commit, op_id)
    VALUES (p_namespace, v_low, v_high, 0, source_id, source_commit, p_op_id)
    ON CONFLICT ON CONSTRAINT merges_pkey DO UPDATE
    SET source_id = excluded.source_id,
        source_commit = excluded.source_commit,
        op_id = excluded.op_id;
END
$$;

CREATE FUNCTION holdfast.begin_operation(p_namespace text, p_op_id uuid, p_kept_us bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();
BEGIN
    INSERT INTO "holdfast".group_operations AS o (namespace, op_id, expires_at)
    VALUES (p_namespace, p_op_id, v_now + p_kept_us)
    ON CONFLICT (namespace, op_id) DO UPDATE
    SET expires_at = excluded.expires_at, answer = NULL
    WHERE o.expires_at <= v_now;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- A few more go than come: so there are never many.
    DELETE FROM "holdfast".group_operations AS d
    WHERE (d.namespace, d.op_id) IN (
        SELECT o.namespace, o.op_id
        FROM "holdfast".group_operations AS o
        WHERE o.expires_at <= v_now
        ORDER BY o.expires_at
        LIMIT 10
        FOR UPDATE SKIP LOCKED
    );
    RETURN true;
END
$$;

CREATE TABLE holdfast.branches (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    parent_id bigint NOT NULL,
    fork_commit bigint NOT NULL,
    created_at bigint NOT NULL,
    op_id uuid NOT NULL,
    deleted_at bigint,
    deleted_op uuid
);

CREATE FUNCTION holdfast.branch_id(p_namespace text, p_branch text) RETURNS bigint
    LANGUAGE sql STABLE
    RETURN CASE WHEN (p_branch = 'main'::text) THEN (0)::bigint ELSE (SELECT b.id FROM holdfast.branches b WHERE ((b.namespace = branch_id.p_namespace) AND (b.name = branch_id.p_branch) AND (b.deleted_at IS NULL))) END;

CREATE FUNCTION holdfast.bury_dead(p_namespace text, p_name text, p_xid text, p_commit_id bigint, p_revive boolean, p_op_id uuid, p_kept_us bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT "holdfast".begin_operation(p_namespace, p_op_id, p_kept_us) THEN
        RETURN "holdfast".known_answer(p_namespace, p_op_id);
    END IF;
    SELECT g.id INTO v_id
    FROM "holdfast".groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name;
    IF NOT FOUND THEN
        RETURN "holdfast".end_operation(p_namespace, p_op_id, NULL);
    END IF;
    IF p_revive THEN
        UPDATE "holdfast".deliveries AS d
        SET due_at = "holdfast".now_us(), number = (d.number / 1048576 + 1) * 1048576, died_at = NULL
        WHERE d.group_id = v_id
          AND d.feed_xid = p_xid::xid8
          AND d.commit_id = p_commit_id
          AND d.due_at IS NULL;
    ELSE
        DELETE FROM "holdfast".deliveries AS d
        WHERE d.group_id = v_id
          AND d.feed_xid = p_xid::xid8
          AND d.commit_id = p_commit_id
          AND d.due_at IS NULL;
    END IF;
    RETURN "holdfast".end_operation(p_namespace, p_op_id, FOUND);
END
$$;

CREATE FUNCTION holdfast.cell_write_applies(p_expected bigint, p_live bigint, p_value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((p_expected = '-1'::integer) OR (p_expected = p_live)) AND ((p_value IS NOT NULL) OR (p_live > 0)));

CREATE FUNCTION holdfast.clock_offset_us() RETURNS bigint
    LANGUAGE sql STABLE
    RETURN 0;

CREATE FUNCTION holdfast.cluster() RETURNS text
    LANGUAGE plpgsql
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

CREATE FUNCTION holdfast.commit_session(p_namespace text, p_branch text, p_branch_id bigint, p_exclusive boolean, p_op_id uuid, p_look_up boolean, p_names text[], p_seen bigint[], p_write boolean[], p_values text[], p_new_versions bigint[], p_firsts text[], p_ends text[], p_found text[], p_found_in bigint[], p_versions bigint, p_age_us bigint, OUT outcome text, OUT cells text[]) RETURNS record
    LANGUAGE plpgsql
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
    IF p_branch_id IS DISTINCT FROM "holdfast".branch_id(p_namespace, p_branch) THEN
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
            FROM "holdfast".cells AS c
            WHERE c.namespace = p_namespace
              AND c.branch_id = p_branch_id
              AND c.name = v_cell.name
            FOR NO KEY UPDATE;
        ELSE
            SELECT c.commit_id INTO v_commit
            FROM "holdfast".cells AS c
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
        FROM "holdfast".cell_versions AS v
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
            CROSS JOIN LATERAL "holdfast".visible_names(p_namespace, p_branch_id, r.first, r.after_last)
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

v_now := "holdfast".now_us();
    FOR v_cell IN
        SELECT i.name, i.value, i.version
        FROM unnest(p_names, p_write, p_values, p_new_versions) AS i (name, write, value, version)
        WHERE i.write
        ORDER BY i.name COLLATE "C"
    LOOP
        PERFORM "holdfast".put_version(
            p_namespace, p_branch_id, v_cell.name, v_cell.value, v_cell.version, p_op_id, v_now,
            p_versions, p_age_us
        );
    END LOOP;
    outcome := 'done';
END
$$;

CREATE FUNCTION holdfast.create_group(p_namespace text, p_name text, p_subjects text[], p_from_start boolean, p_ack_timeout_us bigint, p_max_deliveries bigint, p_op_id uuid, p_kept_us bigint, p_named boolean) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_is_so boolean;
    v_known boolean;
BEGIN
    IF NOT p_named THEN
        v_is_so := EXISTS (
            SELECT 1
            FROM "holdfast".groups AS g
            WHERE g.namespace = p_namespace
              AND g.name = p_name
              AND g.subjects = p_subjects
              AND g.ack_timeout_us = p_ack_timeout_us
              AND g.max_deliveries = p_max_deliveries
        );
        -- After that: if an earlier try of this one made it so, its note is there too.
        v_known := "holdfast".known_answer(p_namespace, p_op_id);
        IF v_is_so OR v_known IS NOT NULL THEN
            RETURN coalesce(v_known, false);
        END IF;
    END IF;
    IF NOT "holdfast".begin_operation(p_namespace, p_op_id, p_kept_us) THEN
        RETURN "holdfast".known_answer(p_namespace, p_op_id);
    END IF;
    LOOP
        INSERT INTO "holdfast".groups (
            namespace, name, subjects, ack_timeout_us, max_deliveries, born, epoch, feed_xid,
            commit_id
        )
        SELECT
            p_namespace, p_name, p_subjects, p_ack_timeout_us, p_max_deliveries,
            CASE WHEN NOT p_from_start THEN pg_current_snapshot() END,
            CASE WHEN p_from_start THEN min(e.epoch) ELSE max(e.epoch) END,
            CASE WHEN p_from_start THEN '0'::xid8 ELSE pg_snapshot_xmin(pg_current_snapshot()) END,
            0
        FROM "holdfast".epochs AS e
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN "holdfast".end_operation(p_namespace, p_op_id, true);
        END IF;
        UPDATE "holdfast".groups AS g
        SET
            subjects = p_subjects,
            ack_timeout_us = p_ack_timeout_us,
            max_deliveries = p_max_deliveries
        WHERE g.namespace = p_namespace AND g.name = p_name;
        IF FOUND THEN
            RETURN "holdfast".end_operation(p_namespace, p_op_id, false);
        END IF;
        -- It was deleted between the two.
    END LOOP;
END
$$;

CREATE FUNCTION holdfast.create_record_index(p_namespace text, p_prefix text, p_fields text[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    LOCK TABLE "holdfast".records IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO "holdfast".record_indexes (namespace, prefix, fields, filled_upto)
    VALUES (p_namespace, p_prefix, p_fields, '')
    ON CONFLICT DO NOTHING;
    UPDATE "holdfast".store_state SET record_indexes = record_indexes + 1;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.delete_branch(p_namespace text, p_name text, p_op_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_branch bigint := "holdfast".lock_branch(p_namespace, p_name);
BEGIN
    IF v_branch IS NULL THEN
        RETURN EXISTS (
            SELECT 1
            FROM "holdfast".branches AS b
            WHERE b.namespace = p_namespace AND b.name = p_name AND b.deleted_op = p_op_id
        );
    END IF;
    UPDATE "holdfast".branches
    SET deleted_at = "holdfast".now_us(), deleted_op = p_op_id
    WHERE id = v_branch;
    DELETE FROM "holdfast".merges
    WHERE namespace = p_namespace AND (low_id = v_branch OR high_id = v_branch);
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.delete_group(p_namespace text, p_name text, p_op_id uuid, p_kept_us bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id bigint;
BEGIN
    IF NOT "holdfast".begin_operation(p_namespace, p_op_id, p_kept_us) THEN
        RETURN "holdfast".known_answer(p_namespace, p_op_id);
    END IF;
    DELETE FROM "holdfast".groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name
    RETURNING g.id INTO v_id;
    PERFORM 1
    FROM "holdfast".deliveries AS d
    WHERE d.group_id = v_id
    ORDER BY d.feed_xid, d.commit_id
    FOR UPDATE;
    DELETE FROM "holdfast".deliveries AS d
    WHERE d.group_id = v_id;
    RETURN "holdfast".end_operation(p_namespace, p_op_id, v_id IS NOT NULL);
END
$$;

CREATE FUNCTION holdfast.delete_run(p_namespace text, p_run_id text, p_limit bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_run bigint;
    v_count bigint;
BEGIN
    UPDATE "holdfast".runs AS r
    SET gone = true
    WHERE r.namespace = p_namespace AND r.run_id = p_run_id AND NOT r.gone;
    FOR v_run IN
        SELECT r.id FROM "holdfast".runs AS r WHERE r.gone ORDER BY r.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM "holdfast".events AS e
        WHERE e.run = v_run
          AND e.run_seq > (
              SELECT coalesce(max(o.run_seq), 0) - p_limit FROM "holdfast".events AS o WHERE o.run = v_run
          );
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count = p_limit THEN
            RETURN false;
        END IF;
        DELETE FROM "holdfast".run_views AS s WHERE s.run = v_run;
        DELETE FROM "holdfast".runs AS r WHERE r.id = v_run;
    END LOOP;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.drop_record_index(p_namespace text, p_prefix text, p_fields text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id bigint;
BEGIN
    LOCK TABLE "holdfast".records IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM "holdfast".record_indexes AS i
    WHERE i.namespace = p_namespace AND i.prefix = p_prefix AND i.fields = p_fields
    RETURNING i.id INTO v_id;
    RETURN v_id;
END
$$;

CREATE FUNCTION holdfast.end_merge(p_namespace text, p_source_id bigint, p_target_id bigint, p_source_commit bigint, p_op_id uuid, p_names text[], p_seen bigint[], p_write boolean[], p_values text[], p_new_versions bigint[], p_versions bigint, p_age_us bigint) RETURNS boolean
    LANGUAGE plpgsql
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
    FROM "holdfast".merges AS m
    WHERE m.namespace = p_namespace
      AND m.low_id = v_low
      AND m.high_id = v_high
      AND m.done = 0
      AND m.source_commit = p_source_commit
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN EXISTS (
            SELECT 1
            FROM "holdfast".merges AS m
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
            FROM "holdfast".cells AS h
            WHERE h.namespace = p_namespace AND h.branch_id = p_target_id AND h.name = i.name
            LIMIT 1
        ) AS c ON true
        WHERE coalesce(c.commit_id, 0) <> i.seen
    ) THEN
        RETURN false;
    END IF;

v_now := "holdfast".now_us();
    FOR v_cell IN
        SELECT i.name, i.value, i.version
        FROM unnest(p_names, p_write, p_values, p_new_versions) AS i (name, write, value, version)
        WHERE i.write
        ORDER BY i.name COLLATE "C"
    LOOP
        PERFORM "holdfast".put_version(
            p_namespace, p_target_id, v_cell.name, v_cell.value, v_cell.version, p_op_id, v_now,
            p_versions, p_age_us
        );
    END LOOP;

DELETE FROM "holdfast".merges
    WHERE namespace = p_namespace AND low_id = v_low AND high_id = v_high AND done = 1;
    UPDATE "holdfast".merges
    SET done = 1
    WHERE namespace = p_namespace AND low_id = v_low AND high_id = v_high AND done = 0;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.end_operation(p_namespace text, p_op_id uuid, p_answer boolean) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF p_answer IS NULL THEN
        DELETE FROM "holdfast".group_operations AS o
        WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
    ELSE
        UPDATE "holdfast".group_operations AS o
        SET answer = p_answer
        WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
    END IF;
    RETURN p_answer;
END
$$;

CREATE FUNCTION holdfast.fetch_messages(p_namespace text, p_name text, p_consumer text, p_limit bigint, p_look bigint) RETURNS TABLE(group_id bigint, xid text, commit_id bigint, number bigint, message_id text, subject text, published_at bigint, trace_id text, payload text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    v_group "holdfast".groups%ROWTYPE;
    v_now bigint;
    v_found bigint := 0;
    v_due record;
    v_new "holdfast".messages%ROWTYPE;
BEGIN
    SELECT g.* INTO v_group
    FROM "holdfast".groups AS g
    WHERE g.namespace = p_namespace AND g.name = p_name
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := "holdfast".now_us();
    FOR v_due IN
        SELECT d.feed_xid, d.commit_id, d.number
        FROM "holdfast".deliveries AS d
        WHERE d.group_id = v_group.id AND d.due_at <= v_now
        ORDER BY d.due_at, d.feed_xid, d.commit_id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        IF v_due.number % 1048576 >= v_group.max_deliveries THEN
            UPDATE "holdfast".deliveries AS d
            SET due_at = NULL, died_at = v_now
            WHERE d.group_id = v_group.id
              AND d.feed_xid = v_due.feed_xid
              AND d.commit_id = v_due.commit_id;
            CONTINUE;
        END IF;
        UPDATE "holdfast".deliveries AS d
        SET due_at = v_now + v_group.ack_timeout_us, number = d.number + 1, consumer = p_consumer
        WHERE d.group_id = v_group.id
          AND d.feed_xid = v_due.feed_xid
          AND d.commit_id = v_due.commit_id;
        RETURN QUERY
        SELECT
            v_group.id, m.feed_xid::text, m.commit_id, v_due.number + 1, m.message_id,
            m.subject, m.published_at, m.trace_id, m.payload
        FROM "holdfast".messages AS m
        WHERE m.namespace = p_namespace
          AND m.feed_xid = v_due.feed_xid
          AND m.commit_id = v_due.commit_id;
        v_found := v_found + 1;
    END LOOP;

FOR v_new IN SELECT a.* FROM "holdfast".messages_ahead(v_group, p_look) AS a LOOP
        EXIT WHEN v_found = p_limit;
        v_group.feed_xid := v_new.feed_xid;
        v_group.commit_id := v_new.commit_id;
        CONTINUE WHEN NOT "holdfast".is_for(v_group, v_new.subject, v_new.feed_xid);
        INSERT INTO "holdfast".deliveries (group_id, feed_xid, commit_id, due_at, number, consumer)
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
    IF NOT EXISTS (SELECT 1 FROM "holdfast".messages_ahead(v_group, 1)) THEN
        -- The epoch may be over: go on in the next one, where nothing is older than the group.
        UPDATE "holdfast".groups AS g
        SET epoch = g.epoch + 1, feed_xid = '0', commit_id = 0, born = NULL
        FROM "holdfast".epochs AS e
        WHERE g.id = v_group.id AND e.epoch = g.epoch AND e.last_commit IS NOT NULL;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    UPDATE "holdfast".groups AS g
    SET feed_xid = v_group.feed_xid, commit_id = v_group.commit_id
    WHERE g.id = v_group.id
      AND (g.feed_xid, g.commit_id) < (v_group.feed_xid, v_group.commit_id);
END
$$;

CREATE FUNCTION holdfast.field_bytes(p_text text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ("left"(p_text, 1) = ''::text) THEN decode(substr(p_text, 2), 'base64'::text) ELSE convert_to(p_text, 'UTF8'::name) END;

CREATE FUNCTION holdfast.field_lead(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN encode(substr(holdfast.field_bytes(p_text), 1, 32), 'hex'::text);

CREATE FUNCTION holdfast.field_sort(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ((p_text !~ '^(0|-?[1-9][0-9]{0,18})$'::text) OR (((p_text)::numeric < ('-9223372036854775808'::bigint)::numeric) OR ((p_text)::numeric > ('9223372036854775807'::bigint)::numeric))) THEN ('t'::text || holdfast.field_lead(p_text)) WHEN ("left"(p_text, 1) = '-'::text) THEN ('n0'::text || translate(lpad(substr(p_text, 2), 19, '0'::text), '0123456789'::text, '9876543210'::text)) ELSE ('n1'::text || lpad(p_text, 19, '0'::text)) END;

CREATE FUNCTION holdfast.fill_record_index(p_namespace text, p_prefix text, p_end text, p_fields text[], p_limit bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id bigint;
    v_upto text;
    v_row record;
    v_looked bigint := 0;
    v_place record;
BEGIN
    SELECT i.id, i.filled_upto INTO v_id, v_upto
    FROM "holdfast".record_indexes AS i
    WHERE i.namespace = p_namespace AND i.prefix = p_prefix AND i.fields = p_fields
    FOR UPDATE;
    IF v_upto IS NULL THEN
        RETURN true;
    END IF;
    FOR v_row IN
        SELECT r.key, r.fields
        FROM "holdfast".records AS r
        WHERE r.namespace = p_namespace
          AND r.key > v_upto
          AND r.key >= p_prefix
          AND r.key < p_end
        ORDER BY r.key
        LIMIT p_limit
        FOR NO KEY UPDATE
    LOOP
        v_looked := v_looked + 1;
        v_upto := v_row.key;
        v_place := "holdfast".record_place(p_fields, v_row.fields);
        IF v_place.sort IS NOT NULL THEN
            INSERT INTO "holdfast".record_index_entries (index_id, lead, sort, key)
            VALUES (v_id, v_place.lead, v_place.sort, v_row.key)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    UPDATE "holdfast".record_indexes AS i
    SET filled_upto = CASE WHEN v_looked = p_limit THEN v_upto END
    WHERE i.id = v_id;
    RETURN v_looked < p_limit;
END
$$;

CREATE FUNCTION holdfast.fork_branch(p_namespace text, p_name text, p_source text, p_op_id uuid, p_most_levels bigint, OUT outcome text, OUT name text, OUT parent text, OUT fork_commit bigint, OUT created_at bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_source bigint := "holdfast".lock_branch(p_namespace, p_source);
    v_levels bigint;
BEGIN
    SELECT 'done', b.name, coalesce(p.name, 'main'), b.fork_commit, b.created_at
    INTO outcome, name, parent, fork_commit, created_at
    FROM "holdfast".branches AS b
    LEFT JOIN "holdfast".branches AS p ON p.id = b.parent_id
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
        JOIN "holdfast".branches AS b ON b.id = l.branch_id
    )
    SELECT count(*) INTO v_levels FROM lineage;
    IF v_levels > p_most_levels THEN
        outcome := 'too deep';
        RETURN;
    END IF;

INSERT INTO "holdfast".branches AS b (namespace, name, parent_id, fork_commit, created_at, op_id)
    VALUES (p_namespace, p_name, v_source, nextval('"holdfast".commit_ids'), "holdfast".now_us(), p_op_id)
    ON CONFLICT DO NOTHING
    RETURNING 'done', b.name, p_source, b.fork_commit, b.created_at
    INTO outcome, name, parent, fork_commit, created_at;
    IF NOT FOUND THEN
        outcome := 'taken';
    END IF;
END
$$;

CREATE FUNCTION holdfast.inherited_cell(p_namespace text, p_branch_id bigint, p_name text, OUT version bigint, OUT updated_at bigint, OUT deleted boolean) RETURNS record
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
        FROM "holdfast".branches AS b
        WHERE b.id = v_branch;
        SELECT v.version, v.updated_at, v.value IS NULL INTO version, updated_at, deleted
        FROM "holdfast".cell_versions AS v
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

CREATE TABLE holdfast.groups (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    subjects text[] NOT NULL,
    ack_timeout_us bigint NOT NULL,
    max_deliveries bigint NOT NULL,
    born pg_snapshot,
    epoch bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL
);

CREATE FUNCTION holdfast.is_for(p_group holdfast.groups, p_subject text, p_xid xid8) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT (p_group.born IS NULL OR NOT pg_visible_in_snapshot(p_xid, p_group.born))
        AND p_subject ~ ANY (p_group.subjects)
$$;

CREATE TABLE holdfast.cell_versions (
    commit_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    branch_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    op_id uuid NOT NULL,
    feed_xid xid8 NOT NULL,
    hidden boolean DEFAULT false NOT NULL,
    value text
);

CREATE TABLE holdfast.merges (
    namespace text NOT NULL COLLATE pg_catalog."C",
    low_id bigint NOT NULL,
    high_id bigint NOT NULL,
    done integer NOT NULL,
    source_id bigint NOT NULL,
    source_commit bigint NOT NULL,
    op_id uuid NOT NULL
);

CREATE VIEW holdfast.cuts AS
 SELECT branches.namespace,
    branches.parent_id AS branch_id,
    branches.fork_commit AS commit_id
   FROM holdfast.branches
UNION ALL
 SELECT merges.namespace,
    merges.source_id AS branch_id,
    merges.source_commit AS commit_id
   FROM holdfast.merges;

CREATE FUNCTION holdfast.is_seen(p_namespace text, p_branch_id bigint, p_name text, p_commit_id bigint) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN ((EXISTS (SELECT 1 FROM holdfast.cuts c WHERE ((c.namespace = is_seen.p_namespace) AND (c.branch_id = is_seen.p_branch_id) AND (c.commit_id >= is_seen.p_commit_id) AND (c.commit_id < (SELECT min(n.commit_id) AS min FROM holdfast.cell_versions n WHERE ((n.namespace = is_seen.p_namespace) AND (n.branch_id = is_seen.p_branch_id) AND (n.name = is_seen.p_name) AND (n.commit_id > is_seen.p_commit_id))))))) OR ((p_branch_id > 0) AND (p_commit_id = (SELECT min(f.commit_id) AS min FROM holdfast.cell_versions f WHERE ((f.namespace = is_seen.p_namespace) AND (f.branch_id = is_seen.p_branch_id) AND (f.name = is_seen.p_name))))));

CREATE FUNCTION holdfast.keep_events() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM "holdfast".runs AS r WHERE r.id = OLD.run AND r.gone) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'events are never deleted one by one: delete the run';
    END IF;
    RAISE EXCEPTION 'events are never changed: append another one';
END
$$;

CREATE FUNCTION holdfast.known_answer(p_namespace text, p_op_id uuid) RETURNS boolean
    LANGUAGE sql
    AS $$
    SELECT o.answer
    FROM "holdfast".group_operations AS o
    WHERE o.namespace = p_namespace AND o.op_id = p_op_id;
$$;

CREATE FUNCTION holdfast.lock_branch(p_namespace text, p_branch text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_branch bigint := "holdfast".branch_id(p_namespace, p_branch);
BEGIN
    IF v_branch IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace, v_branch));
    IF v_branch IS DISTINCT FROM "holdfast".branch_id(p_namespace, p_branch) THEN
        RETURN NULL;
    END IF;
    RETURN v_branch;
END
$$;

CREATE TABLE holdfast.messages (
    namespace text NOT NULL COLLATE pg_catalog."C",
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    subject text NOT NULL COLLATE pg_catalog."C",
    message_id text NOT NULL COLLATE pg_catalog."C",
    published_at bigint NOT NULL,
    trace_id text,
    payload text NOT NULL
);

CREATE FUNCTION holdfast.messages_ahead(p_group holdfast.groups, p_limit bigint) RETURNS SETOF holdfast.messages
    LANGUAGE sql
    AS $$
    SELECT m.*
    FROM "holdfast".epochs AS e
    CROSS JOIN LATERAL (
        SELECT o.*
        FROM "holdfast".messages AS o
        WHERE o.namespace = p_group.namespace
          AND (o.feed_xid, o.commit_id) > (p_group.feed_xid, p_group.commit_id)
          AND (
              e.last_commit IS NOT NULL OR o.feed_xid < pg_snapshot_xmin(pg_current_snapshot())
          )
          AND o.commit_id >= e.first_commit
          AND (e.last_commit IS NULL OR o.commit_id <= e.last_commit)
        ORDER BY o.feed_xid, o.commit_id
        LIMIT p_limit
    ) AS m
    WHERE e.epoch = p_group.epoch
$$;

CREATE FUNCTION holdfast.move_clock() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.clock_offset_us <> "holdfast".clock_offset_us() THEN
        EXECUTE format(
            'CREATE OR REPLACE FUNCTION %I.clock_offset_us() RETURNS bigint '
            'LANGUAGE sql STABLE RETURN %s',
            TG_TABLE_SCHEMA, NEW.clock_offset_us
        );
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION holdfast.now_us() RETURNS bigint
    LANGUAGE sql
    RETURN (((date_part('epoch'::text, clock_timestamp()) * (1000000)::double precision))::bigint + holdfast.clock_offset_us());

CREATE FUNCTION holdfast.prune_cells(p_namespace text, p_branch text, p_first text, p_last text, p_slice bigint, p_versions bigint, p_age_us bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_branch bigint := "holdfast".branch_id(p_namespace, p_branch);
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_namespace, v_branch));
    PERFORM 1
    FROM "holdfast".cells AS c
    WHERE c.namespace = p_namespace
      AND c.branch_id = v_branch
      AND c.name >= p_first
      AND c.name <= p_last
    ORDER BY c.name
    FOR NO KEY UPDATE;
    RETURN "holdfast".trim_cells(
        p_namespace, v_branch, p_first, p_last, p_slice, p_versions,
        CASE WHEN p_age_us IS NULL THEN -1 ELSE "holdfast".now_us() - p_age_us END
    );
END
$$;

CREATE FUNCTION holdfast.publish_messages(p_namespaces text[], p_subjects text[], p_message_ids text[], p_trace_ids text[], p_payloads text[], p_window_us bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint;
    v_message record;
    v_count bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(l.key)
    FROM (
        SELECT DISTINCT hashtextextended(i.message_id, hashtextextended(i.namespace, 17)) AS key
        FROM unnest(p_namespaces, p_message_ids) AS i (namespace, message_id)
        ORDER BY key
    ) AS l;
    v_now := "holdfast".now_us();
    FOR v_message IN
        SELECT i.*
        FROM unnest(p_namespaces, p_subjects, p_message_ids, p_trace_ids, p_payloads)
            WITH ORDINALITY AS i (namespace, subject, message_id, trace_id, payload, item)
        ORDER BY i.item
    LOOP
        CONTINUE WHEN EXISTS (
            SELECT 1
            FROM "holdfast".messages AS m
            WHERE m.namespace = v_message.namespace
              AND m.message_id = v_message.message_id
              AND m.published_at > v_now - p_window_us
        );
        INSERT INTO "holdfast".messages (
            namespace, feed_xid, commit_id, subject, message_id, published_at, trace_id, payload
        )
        VALUES (
            v_message.namespace, pg_current_xact_id(), nextval('"holdfast".commit_ids'),
            v_message.subject, v_message.message_id, v_now, v_message.trace_id, v_message.payload
        );
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;

CREATE FUNCTION holdfast.purge_branches(p_namespace text, p_limit bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_branch bigint;
    v_gone bigint;
    v_more bigint;
BEGIN
    SELECT b.id INTO v_branch
    FROM "holdfast".branches AS b
    WHERE b.namespace = p_namespace
      AND b.deleted_at IS NOT NULL
      AND NOT EXISTS (
        SELECT 1
        FROM "holdfast".branches AS c
        WHERE c.namespace = p_namespace AND c.parent_id = b.id
      )
    ORDER BY b.id
    LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM "holdfast".cell_versions
    WHERE ctid = ANY (ARRAY(
        SELECT v.ctid
        FROM "holdfast".cell_versions AS v
        WHERE v.namespace = p_namespace AND v.branch_id = v_branch
        LIMIT p_limit
    ));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM "holdfast".cells
    WHERE ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM "holdfast".cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = v_branch
        LIMIT p_limit
    ));
    GET DIAGNOSTICS v_more = ROW_COUNT;
    IF v_gone < p_limit AND v_more < p_limit THEN
        DELETE FROM "holdfast".branches WHERE id = v_branch;
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.purge_messages(p_older_than_us bigint, p_limit bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_cutoff bigint := "holdfast".now_us() - p_older_than_us;
    v_namespace text := '';
    v_last bigint;
    v_message record;
    v_gone bigint := 0;
BEGIN
    LOOP
        SELECT min(m.namespace) INTO v_namespace
        FROM "holdfast".messages AS m
        WHERE m.namespace > v_namespace;
        EXIT WHEN v_namespace IS NULL;
        v_last := 0;
        LOOP
            -- One at a time: a longer list would be made, and read, to be thrown away.
            SELECT m.feed_xid, m.commit_id, m.published_at INTO v_message
            FROM "holdfast".messages AS m
            WHERE m.namespace = v_namespace AND m.commit_id > v_last
            ORDER BY m.commit_id
            LIMIT 1;
            EXIT WHEN NOT FOUND OR v_message.published_at >= v_cutoff OR EXISTS (
                SELECT 1
                FROM "holdfast".groups AS g
                JOIN "holdfast".epochs AS e ON e.epoch = g.epoch
                WHERE g.namespace = v_namespace
                  AND (
                      (
                          (v_message.feed_xid, v_message.commit_id) > (g.feed_xid, g.commit_id)
                          AND v_message.commit_id >= e.first_commit
                      )
                      OR v_message.commit_id > e.last_commit
                  )
            );
            v_last := v_message.commit_id;
            DELETE FROM "holdfast".messages AS m
            WHERE m.namespace = v_namespace
              AND m.feed_xid = v_message.feed_xid
              AND m.commit_id = v_message.commit_id
              AND NOT EXISTS (
                  SELECT 1
                  FROM "holdfast".groups AS g
                  JOIN "holdfast".deliveries AS d ON d.group_id = g.id
                  WHERE g.namespace = v_namespace
                    AND d.feed_xid = v_message.feed_xid
                    AND d.commit_id = v_message.commit_id
              );
            IF FOUND THEN
                v_gone := v_gone + 1;
                IF v_gone = p_limit THEN
                    RETURN v_gone;
                END IF;
            END IF;
        END LOOP;
    END LOOP;
    RETURN v_gone;
END
$$;

CREATE FUNCTION holdfast.purge_records(p_limit bigint, OUT gone bigint, OUT cut bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();
    v_row record;
    v_commit bigint;
BEGIN
    gone := 0;
    -- What somebody else is writing to is not expired, or is theirs to bury.
    FOR v_row IN
        SELECT r.namespace, r.key, r.fields
        FROM "holdfast".records AS r
        WHERE r.expires_at <= v_now
        ORDER BY r.expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        gone := gone + 1;
        IF v_row.fields IS NULL THEN
            DELETE FROM "holdfast".records AS r
            WHERE r.namespace = v_row.namespace AND r.key = v_row.key;
            CONTINUE;
        END IF;
        v_commit := nextval('"holdfast".commit_ids');
        UPDATE "holdfast".records AS r
        SET fields = NULL, expires_at = v_now + 86400000000, commit_id = v_commit,
            feed_xid = pg_current_xact_id()
        WHERE r.namespace = v_row.namespace AND r.key = v_row.key;
        INSERT INTO "holdfast".record_changes (namespace, feed_xid, commit_id, key, changed_at)
        VALUES (v_row.namespace, pg_current_xact_id(), v_commit, v_row.key, v_now);
        PERFORM "holdfast".reindex_record(v_row.namespace, v_row.key, v_row.fields, NULL);
    END LOOP;

-- Mostly nothing is old, and the index's first entry tells.
    cut := 0;
    IF (SELECT min(c.changed_at) FROM "holdfast".record_changes AS c) >= v_now - 86400000000 THEN
        RETURN;
    END IF;
    WITH old AS (
        SELECT c.ctid AS place
        FROM "holdfast".record_changes AS c
        WHERE c.changed_at < v_now - 86400000000
        ORDER BY c.changed_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ),
    dropped AS (
        -- By their places, which are locked: joined by keys, all entries might be read.
        DELETE FROM "holdfast".record_changes AS c
        WHERE c.ctid = ANY (ARRAY(SELECT o.place FROM old AS o))
        RETURNING c.namespace, c.feed_xid, c.commit_id
    ),
    floors AS (
        INSERT INTO "holdfast".record_floors AS f (namespace, feed_xid, commit_id)
        SELECT DISTINCT ON (d.namespace) d.namespace, d.feed_xid, d.commit_id
        FROM dropped AS d
        ORDER BY d.namespace, d.feed_xid DESC, d.commit_id DESC
        ON CONFLICT (namespace) DO UPDATE
        SET feed_xid = excluded.feed_xid, commit_id = excluded.commit_id
        WHERE (f.feed_xid, f.commit_id) < (excluded.feed_xid, excluded.commit_id)
    )
    SELECT count(*) INTO cut FROM dropped;
END
$$;

CREATE FUNCTION holdfast.put_version(p_namespace text, p_branch_id bigint, p_name text, p_value text, p_version bigint, p_op_id uuid, p_now bigint, p_versions bigint, p_age_us bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    WITH head AS (
        INSERT INTO "holdfast".cells AS c
            (namespace, branch_id, name, version, commit_id, updated_at, deleted, feed_xid)
        SELECT
            p_namespace, p_branch_id, p_name, p_version, nextval('"holdfast".commit_ids'),
            greatest(p_now, i.updated_at), p_value IS NULL, pg_current_xact_id()
        FROM "holdfast".inherited_cell(p_namespace, p_branch_id, p_name) AS i
        ON CONFLICT (namespace, branch_id, name) DO UPDATE
        SET version = excluded.version,
            commit_id = excluded.commit_id,
            -- Never back, also when the clock was.
            updated_at = greatest(c.updated_at, excluded.updated_at),
            deleted = excluded.deleted,
            feed_xid = greatest(c.feed_xid, excluded.feed_xid)
        RETURNING c.commit_id, c.updated_at, c.feed_xid
    )
    INSERT INTO "holdfast".cell_versions
        (commit_id, namespace, branch_id, name, version, updated_at, op_id, feed_xid, value)
    SELECT
        h.commit_id, p_namespace, p_branch_id, p_name, p_version, h.updated_at, p_op_id,
        h.feed_xid, p_value
    FROM head AS h;
    IF p_versions IS NOT NULL THEN
        PERFORM "holdfast".trim_cells(
            p_namespace, p_branch_id, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE p_now - p_age_us END
        );
    END IF;
END
$$;

CREATE FUNCTION holdfast.record_place(p_fields text[], p_record jsonb, OUT lead text, OUT sort text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    v_last integer := array_length(p_fields, 1);
BEGIN
    IF p_record IS NULL OR NOT p_record ?& p_fields THEN
        RETURN;
    END IF;
    SELECT coalesce(string_agg("holdfast".field_lead(p_record ->> f.name), '.' ORDER BY f.item), '')
    INTO lead
    FROM unnest(p_fields[1:v_last - 1]) WITH ORDINALITY AS f (name, item);
    sort := "holdfast".field_sort(p_record ->> p_fields[v_last]);
END
$$;

CREATE FUNCTION holdfast.reindex_record(p_namespace text, p_key text, p_before jsonb, p_after jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_index record;
    v_was record;
    v_is record;
BEGIN
    FOR v_index IN
        SELECT i.id, i.fields
        FROM "holdfast".record_indexes AS i
        WHERE i.namespace = p_namespace AND starts_with(p_key, i.prefix)
        ORDER BY i.id
    LOOP
        v_was := "holdfast".record_place(v_index.fields, p_before);
        v_is := "holdfast".record_place(v_index.fields, p_after);
        CONTINUE WHEN v_was IS NOT DISTINCT FROM v_is;
        IF v_was.sort IS NOT NULL THEN
            DELETE FROM "holdfast".record_index_entries AS e
            WHERE e.index_id = v_index.id
              AND e.lead = v_was.lead
              AND e.sort = v_was.sort
              AND e.key = p_key;
        END IF;
        IF v_is.sort IS NOT NULL THEN
            INSERT INTO "holdfast".record_index_entries (index_id, lead, sort, key)
            VALUES (v_index.id, v_is.lead, v_is.sort, p_key)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION holdfast.trim_cells(p_namespace text, p_branch_id bigint, p_first text, p_last text, p_slice bigint, p_versions bigint, p_cutoff bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    -- Without branches nothing is seen from elsewhere, and nobody shall pay for asking.
    v_forked boolean := EXISTS (SELECT 1 FROM "holdfast".branches AS b WHERE b.namespace = p_namespace);
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
            v_forked AND "holdfast".is_seen(c.namespace, c.branch_id, c.name, o.commit_id) AS seen
        FROM "holdfast".cells AS c
        CROSS JOIN LATERAL (
            SELECT v.ctid AS place, v.commit_id, v.version, v.hidden
            FROM "holdfast".cell_versions AS v
            WHERE v.namespace = c.namespace
              AND v.branch_id = c.branch_id
              AND v.name = c.name
              AND NOT (
                v.hidden AND v_forked
                AND "holdfast".is_seen(c.namespace, c.branch_id, c.name, v.commit_id)
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
                FROM "holdfast".cell_versions AS n
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
        DELETE FROM "holdfast".cell_versions WHERE ctid = ANY (v_old);
    END IF;
    IF v_seen IS NOT NULL THEN
        UPDATE "holdfast".cell_versions SET hidden = true WHERE ctid = ANY (v_seen);
    END IF;
    v_gone := coalesce(cardinality(v_old), 0) + coalesce(cardinality(v_seen), 0);
    RETURN ARRAY[v_gone - v_hidden, v_gone];
END
$$;

CREATE FUNCTION holdfast.visible_names(p_namespace text, p_branch_id bigint, p_first text, p_end text) RETURNS SETOF text
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    WITH RECURSIVE lineage (level, branch_id, upto) AS (
        SELECT 1, b.parent_id, b.fork_commit
        FROM "holdfast".branches AS b
        WHERE b.id = p_branch_id
        UNION ALL
        SELECT l.level + 1, b.parent_id, b.fork_commit
        FROM lineage AS l
        JOIN "holdfast".branches AS b ON b.id = l.branch_id
    ),
    known (level, name, deleted) AS (
        SELECT 0, c.name, c.deleted
        FROM "holdfast".cells AS c
        WHERE c.namespace = p_namespace
          AND c.branch_id = p_branch_id
          AND c.name >= p_first
          AND c.name < p_end
        UNION ALL
        SELECT l.level, c.name, v.deleted
        FROM lineage AS l
        JOIN "holdfast".cells AS c
          ON c.namespace = p_namespace
         AND c.branch_id = l.branch_id
         AND c.name >= p_first
         AND c.name < p_end
        CROSS JOIN LATERAL (
            SELECT o.value IS NULL AS deleted
            FROM "holdfast".cell_versions AS o
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

CREATE FUNCTION holdfast.write_cell(p_namespace text, p_branch text, p_name text, p_expected bigint, p_value text, p_op_id uuid, p_look_up boolean, p_repeat boolean, p_versions bigint, p_age_us bigint, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
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
        v_branch := "holdfast".branch_id(p_namespace, p_branch);
        IF v_branch IS NULL THEN
            RETURN -9223372036854775808;
        END IF;
    END IF;

-- Shared among writers. A fork takes it exclusively: only then are all commit ids
    -- below its own committed. Hence before nextval(). The seed is the branch.
    -- An assignment, because PERFORM would run a query.
    v_locked := pg_advisory_xact_lock_shared(hashtextextended(p_namespace, v_branch))::text;

-- It may have been deleted while the lock was waited for.
    IF v_branch > 0 AND v_branch IS DISTINCT FROM "holdfast".branch_id(p_namespace, p_branch) THEN
        RETURN -9223372036854775808;
    END IF;

LOOP
        IF p_look_up THEN
            -- The lock first: whoever has it may be the first try.
            SELECT c.version INTO v_locked_at
            FROM "holdfast".cells AS c
            WHERE c.namespace = p_namespace AND c.branch_id = v_branch AND c.name = p_name
            FOR NO KEY UPDATE;
            SELECT v.version INTO v_version
            FROM "holdfast".cell_versions AS v
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
                UPDATE "holdfast".cells AS c
                SET version = CASE WHEN p_value IS NULL THEN c.version ELSE c.version + 1 END,
                    commit_id = nextval('"holdfast".commit_ids'),
                    -- Never back, also when the clock was.
                    updated_at = greatest(c.updated_at, coalesce(p_now, "holdfast".now_us())),
                    deleted = p_value IS NULL,
                    feed_xid = greatest(c.feed_xid, pg_current_xact_id())
                WHERE c.namespace = p_namespace
                  AND c.branch_id = v_branch
                  AND c.name = p_name
                  AND "holdfast".cell_write_applies(
                      p_expected, CASE WHEN c.deleted THEN 0 ELSE c.version END, p_value
                  )
                RETURNING c.version, c.commit_id, c.updated_at, c.feed_xid
            )
            INSERT INTO "holdfast".cell_versions AS v
                (commit_id, namespace, branch_id, name, version, updated_at, op_id, feed_xid, value)
            SELECT
                h.commit_id, p_namespace, v_branch, p_name, h.version, h.updated_at, p_op_id,
                h.feed_xid, p_value
            FROM head AS h
            RETURNING v.version INTO v_version;
            EXIT WHEN FOUND;
        END IF;

SELECT CASE WHEN c.deleted THEN 0 ELSE c.version END INTO v_live
        FROM "holdfast".cells AS c
        WHERE c.namespace = p_namespace AND c.branch_id = v_branch AND c.name = p_name;
        IF FOUND THEN
            -- It may have changed since we looked.
            CONTINUE WHEN v_unlocked OR "holdfast".cell_write_applies(p_expected, v_live, p_value);
            RETURN -1 - v_live;
        END IF;
        -- A new cell begins as a deleted one at version 0, or on a branch as its parent's: for
        -- the update to bring to life. If somebody else was faster, all is looked at again.
        v_version := 0;
        IF v_branch > 0 THEN
            SELECT i.version, i.updated_at, i.deleted INTO v_version, v_updated_at, v_deleted
            FROM "holdfast".inherited_cell(p_namespace, v_branch, p_name) AS i;
        END IF;
        v_live := CASE WHEN v_deleted THEN 0 ELSE v_version END;
        IF NOT "holdfast".cell_write_applies(p_expected, v_live, p_value) THEN
            RETURN -1 - v_live;
        END IF;
        INSERT INTO "holdfast".cells (namespace, branch_id, name, version, commit_id, updated_at, deleted)
        VALUES (p_namespace, v_branch, p_name, v_version, 0, v_updated_at, v_deleted)
        ON CONFLICT DO NOTHING;
    END LOOP;

IF p_versions IS NOT NULL THEN
        PERFORM "holdfast".trim_cells(
            p_namespace, v_branch, p_name, p_name, 4, p_versions,
            CASE WHEN p_age_us IS NULL THEN -1 ELSE coalesce(p_now, "holdfast".now_us()) - p_age_us END
        );
    END IF;
    RETURN v_version;
END
$$;

CREATE FUNCTION holdfast.write_cells(p_namespaces text[], p_branches text[], p_names text[], p_expected bigint[], p_values text[], p_op_ids uuid[], p_look_up boolean, p_repeat boolean, p_versions bigint, p_age_us bigint) RETURNS TABLE(item bigint, outcome bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();  -- once, so that a set_many is one moment in history too
    v_write record;
BEGIN
    FOR v_write IN
        SELECT i.namespace, i.branch, i.name, i.expected, i.value, i.op_id, i.item
        FROM unnest(p_namespaces, p_branches, p_names, p_expected, p_values, p_op_ids)
            WITH ORDINALITY AS i (namespace, branch, name, expected, value, op_id, item)
        ORDER BY i.namespace COLLATE "C", i.branch COLLATE "C", i.name COLLATE "C", i.item
    LOOP
        item := v_write.item;
        outcome := "holdfast".write_cell(
            v_write.namespace, v_write.branch, v_write.name, v_write.expected, v_write.value,
            v_write.op_id, p_look_up, p_repeat, p_versions, p_age_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION holdfast.write_record(p_namespace text, p_key text, p_expect jsonb, p_set jsonb, p_stamps jsonb, p_replace boolean, p_must_exist boolean, p_ttl_us bigint, p_op_id uuid, p_asked_ago_us bigint, p_now bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_row "holdfast".records%ROWTYPE;
    v_there boolean;
    v_now bigint := coalesce(p_now, "holdfast".now_us());
    v_before jsonb;
    v_after jsonb;
    v_expires_at bigint;
    v_commit bigint;
    v_xid xid8;
BEGIN
    LOOP
        SELECT * INTO v_row
        FROM "holdfast".records AS r
        WHERE r.namespace = p_namespace AND r.key = p_key
        FOR NO KEY UPDATE;
        v_there := FOUND;
        IF v_there AND v_row.op_id = p_op_id THEN
            RETURN true;
        END IF;
        -- What this transaction has written itself came after the first try of all of its batch.
        IF v_there AND v_row.updated_at >= v_now - p_asked_ago_us
            AND v_row.feed_xid IS DISTINCT FROM pg_current_xact_id_if_assigned()
        THEN
            RETURN NULL;
        END IF;

v_before := '{}';
        v_expires_at := NULL;
        IF v_there AND v_row.fields IS NOT NULL
            AND (v_row.expires_at IS NULL OR v_row.expires_at > v_now)
        THEN
            v_before := v_row.fields;
            v_expires_at := v_row.expires_at;
        END IF;
        IF p_must_exist AND v_before = '{}' THEN
            RETURN false;
        END IF;
        -- Not field by field: each look would unpack all of a large record.
        IF p_expect IS NOT NULL AND (
            NOT v_before @> jsonb_strip_nulls(p_expect)
            OR v_before ?| ARRAY(
                SELECT e.name
                FROM jsonb_each_text(p_expect) AS e (name, value)
                WHERE e.value IS NULL
            )
        ) THEN
            RETURN false;
        END IF;

v_after := jsonb_strip_nulls(
            CASE WHEN p_replace THEN p_set ELSE v_before || p_set END
        );
        IF p_stamps IS NOT NULL THEN
            SELECT v_after || jsonb_object_agg(s.name, ((v_now + s.after_us::bigint) / 1000)::text)
            INTO v_after
            FROM jsonb_each_text(p_stamps) AS s (name, after_us);
        END IF;
        IF v_after = '{}' THEN
            IF v_before = '{}' THEN
                RETURN true;
            END IF;
            -- What goes is remembered for its operation id, for a day.
            v_after := NULL;
            v_expires_at := v_now + 86400000000;
        ELSIF p_ttl_us >= 0 THEN
            v_expires_at := CASE WHEN p_ttl_us > 0 THEN v_now + p_ttl_us END;
        END IF;

v_commit := nextval('"holdfast".commit_ids');
        v_xid := pg_current_xact_id();
        IF v_there THEN
            UPDATE "holdfast".records AS r
            SET fields = v_after, expires_at = v_expires_at, updated_at = v_now,
                commit_id = v_commit, feed_xid = v_xid, op_id = p_op_id
            WHERE r.namespace = p_namespace AND r.key = p_key;
            EXIT;
        END IF;
        INSERT INTO "holdfast".records
            (namespace, key, fields, expires_at, updated_at, commit_id, feed_xid, op_id)
        VALUES (p_namespace, p_key, v_after, v_expires_at, v_now, v_commit, v_xid, p_op_id)
        ON CONFLICT DO NOTHING;
        -- If somebody else was faster, all is looked at again.
        EXIT WHEN FOUND;
    END LOOP;

INSERT INTO "holdfast".record_changes (namespace, feed_xid, commit_id, key, changed_at)
    VALUES (p_namespace, v_xid, v_commit, p_key, v_now);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM 1 FROM "holdfast".store_state FOR SHARE;
    END IF;
    IF EXISTS (SELECT 1 FROM "holdfast".record_indexes) THEN
        -- Also what had expired has its entries still.
        PERFORM "holdfast".reindex_record(p_namespace, p_key, v_row.fields, v_after);
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.write_records(p_namespaces text[], p_keys text[], p_expect jsonb[], p_set jsonb[], p_stamps jsonb[], p_replace boolean[], p_must_exist boolean[], p_ttl_us bigint[], p_op_ids uuid[], p_asked_ago_us bigint[]) RETURNS TABLE(item bigint, applied boolean)
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_now bigint := "holdfast".now_us();
    v_write record;
BEGIN
    FOR v_write IN
        SELECT i.*
        FROM unnest(
            p_namespaces, p_keys, p_expect, p_set, p_stamps, p_replace, p_must_exist, p_ttl_us,
            p_op_ids, p_asked_ago_us
        ) WITH ORDINALITY AS i (
            namespace, key, expect, set, stamps, replace, must_exist, ttl_us, op_id, asked_ago_us,
            item
        )
        ORDER BY i.namespace COLLATE "C", i.key COLLATE "C", i.item
    LOOP
        item := v_write.item;
        applied := "holdfast".write_record(
            v_write.namespace, v_write.key, v_write.expect, v_write.set, v_write.stamps,
            v_write.replace, v_write.must_exist, v_write.ttl_us, v_write.op_id,
            v_write.asked_ago_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;

ALTER TABLE holdfast.branches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.branches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast.cells (
    namespace text NOT NULL COLLATE pg_catalog."C",
    branch_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    commit_id bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted boolean NOT NULL,
    feed_xid xid8 DEFAULT '0'::xid8 NOT NULL
)
WITH (fillfactor='70');

CREATE SEQUENCE holdfast.commit_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE holdfast.deliveries (
    group_id bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    due_at bigint,
    number bigint NOT NULL,
    consumer text NOT NULL,
    died_at bigint
);

CREATE TABLE holdfast.epochs (
    epoch bigint NOT NULL,
    first_commit bigint NOT NULL,
    last_commit bigint,
    cluster text
);

CREATE TABLE holdfast.events (
    namespace text NOT NULL COLLATE pg_catalog."C",
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    run bigint NOT NULL,
    run_seq bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    emitted_at bigint NOT NULL,
    persisted_at bigint NOT NULL,
    data text NOT NULL,
    more text
);

CREATE TABLE holdfast.group_operations (
    namespace text NOT NULL COLLATE pg_catalog."C",
    op_id uuid NOT NULL,
    expires_at bigint NOT NULL,
    answer boolean
);

ALTER TABLE holdfast.groups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);

CREATE TABLE holdfast.record_changes (
    namespace text NOT NULL COLLATE pg_catalog."C",
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    changed_at bigint NOT NULL
);

CREATE TABLE holdfast.record_floors (
    namespace text NOT NULL COLLATE pg_catalog."C",
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL
);

CREATE TABLE holdfast.record_index_entries (
    index_id bigint NOT NULL,
    lead text NOT NULL COLLATE pg_catalog."C",
    sort text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE holdfast.record_indexes (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    prefix text NOT NULL COLLATE pg_catalog."C",
    fields text[] NOT NULL,
    filled_upto text COLLATE pg_catalog."C"
);

ALTER TABLE holdfast.record_indexes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.record_indexes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast.records (
    namespace text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fields jsonb,
    expires_at bigint,
    updated_at bigint NOT NULL,
    commit_id bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    op_id uuid NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE holdfast.run_views (
    run bigint NOT NULL,
    view text NOT NULL COLLATE pg_catalog."C",
    last_seq bigint NOT NULL,
    payload text NOT NULL
);

ALTER TABLE holdfast.runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast.store_state (
    id integer NOT NULL,
    clock_offset_us bigint NOT NULL,
    record_indexes bigint DEFAULT 0 NOT NULL,
    CONSTRAINT store_state_id_check CHECK ((id = 1))
);

ALTER TABLE ONLY holdfast.branches
    ADD CONSTRAINT branches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.cell_versions
    ADD CONSTRAINT cell_versions_pkey PRIMARY KEY (namespace, branch_id, name, commit_id) INCLUDE (updated_at);

ALTER TABLE ONLY holdfast.cells
    ADD CONSTRAINT cells_pkey PRIMARY KEY (namespace, branch_id, name);

ALTER TABLE ONLY holdfast.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (group_id, feed_xid, commit_id);

ALTER TABLE ONLY holdfast.epochs
    ADD CONSTRAINT epochs_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY holdfast.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (namespace, feed_xid, commit_id);

ALTER TABLE ONLY holdfast.group_operations
    ADD CONSTRAINT group_operations_pkey PRIMARY KEY (namespace, op_id);

ALTER TABLE ONLY holdfast.groups
    ADD CONSTRAINT groups_namespace_name_key UNIQUE (namespace, name);

ALTER TABLE ONLY holdfast.groups
    ADD CONSTRAINT groups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.merges
    ADD CONSTRAINT merges_pkey PRIMARY KEY (namespace, low_id, high_id, done);

ALTER TABLE ONLY holdfast.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (namespace, feed_xid, commit_id);

ALTER TABLE ONLY holdfast.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY holdfast.record_changes
    ADD CONSTRAINT record_changes_pkey PRIMARY KEY (namespace, feed_xid, commit_id);

ALTER TABLE ONLY holdfast.record_floors
    ADD CONSTRAINT record_floors_pkey PRIMARY KEY (namespace);

ALTER TABLE ONLY holdfast.record_index_entries
    ADD CONSTRAINT record_index_entries_pkey PRIMARY KEY (index_id, lead, sort, key);

ALTER TABLE ONLY holdfast.record_indexes
    ADD CONSTRAINT record_indexes_namespace_prefix_fields_key UNIQUE (namespace, prefix, fields);

ALTER TABLE ONLY holdfast.record_indexes
    ADD CONSTRAINT record_indexes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (namespace, key);

ALTER TABLE ONLY holdfast.run_views
    ADD CONSTRAINT run_views_pkey PRIMARY KEY (run, view);

ALTER TABLE ONLY holdfast.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast.store_state
    ADD CONSTRAINT store_state_pkey PRIMARY KEY (id);

CREATE UNIQUE INDEX branches_by_name ON holdfast.branches USING btree (namespace, name) WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX branches_by_op ON holdfast.branches USING btree (namespace, op_id);

CREATE INDEX branches_by_parent ON holdfast.branches USING btree (namespace, parent_id, fork_commit);

CREATE INDEX cell_versions_by_feed ON holdfast.cell_versions USING btree (namespace, feed_xid, commit_id);

CREATE UNIQUE INDEX cell_versions_by_op ON holdfast.cell_versions USING btree (op_id, namespace, branch_id, name);

CREATE INDEX deliveries_by_due ON holdfast.deliveries USING btree (group_id, due_at) WHERE (due_at IS NOT NULL);

CREATE UNIQUE INDEX events_by_id ON holdfast.events USING btree (run, event_id);

CREATE UNIQUE INDEX events_by_key ON holdfast.events USING btree (run, key);

CREATE UNIQUE INDEX events_by_seq ON holdfast.events USING btree (run, run_seq);

CREATE INDEX group_operations_by_expiry ON holdfast.group_operations USING btree (expires_at);

CREATE INDEX merges_by_source ON holdfast.merges USING btree (namespace, source_id, source_commit);

CREATE INDEX messages_by_commit ON holdfast.messages USING btree (namespace, commit_id);

CREATE INDEX messages_by_id ON holdfast.messages USING btree (namespace, message_id, published_at);

CREATE INDEX record_changes_by_age ON holdfast.record_changes USING btree (changed_at);

CREATE INDEX records_by_expiry ON holdfast.records USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE UNIQUE INDEX runs_by_name ON holdfast.runs USING btree (namespace, run_id) WHERE (NOT gone);

CREATE INDEX runs_gone ON holdfast.runs USING btree (id) WHERE gone;

CREATE TRIGGER clock_moved AFTER INSERT OR UPDATE ON holdfast.store_state FOR EACH ROW EXECUTE FUNCTION holdfast.move_clock();

ALTER TABLE holdfast.store_state ENABLE ALWAYS TRIGGER clock_moved;

CREATE TRIGGER events_are_not_truncated BEFORE TRUNCATE ON holdfast.events FOR EACH STATEMENT EXECUTE FUNCTION holdfast.keep_events();

CREATE TRIGGER events_stay BEFORE DELETE OR UPDATE ON holdfast.events FOR EACH ROW EXECUTE FUNCTION holdfast.keep_events();
