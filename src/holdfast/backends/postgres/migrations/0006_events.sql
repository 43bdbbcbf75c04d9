-- The runs of the event log. Room on the page, and no index on what an append changes: updates
-- stay in place (HOT).
CREATE TABLE hf.runs (
    -- Never given out again: another run of the same name is another one.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    last_seq bigint NOT NULL,
    -- Of the newest event, or a later one: see facets/feed.py.
    feed_xid xid8 NOT NULL,
    -- Being deleted: out of sight, and its events may go.
    gone boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX runs_by_name ON hf.runs (namespace, run_id) WHERE NOT gone;

CREATE INDEX runs_gone ON hf.runs (id) WHERE gone;

CREATE TABLE hf.events (
    namespace text COLLATE "C" NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    run bigint NOT NULL,
    run_seq bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    emitted_at bigint NOT NULL,
    persisted_at bigint NOT NULL,
    data text NOT NULL,
    more text,
    PRIMARY KEY (namespace, feed_xid, commit_id)
);

CREATE UNIQUE INDEX events_by_seq ON hf.events (run, run_seq);

CREATE UNIQUE INDEX events_by_key ON hf.events (run, key);

CREATE UNIQUE INDEX events_by_id ON hf.events (run, event_id);

-- The views of a run as a projector left them: true up to that number.
CREATE TABLE hf.run_views (
    run bigint NOT NULL,
    view text COLLATE "C" NOT NULL,
    last_seq bigint NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (run, view)
);

CREATE FUNCTION hf.keep_events() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM hf.runs AS r WHERE r.id = OLD.run AND r.gone) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'events are never deleted one by one: delete the run';
    END IF;
    RAISE EXCEPTION 'events are never changed: append another one';
END
$$;

CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON hf.events
FOR EACH ROW EXECUTE FUNCTION hf.keep_events();

CREATE TRIGGER events_are_not_truncated BEFORE TRUNCATE ON hf.events
FOR EACH STATEMENT EXECUTE FUNCTION hf.keep_events();

-- An event's answer: its number, of a known one also what was stored. Or why nothing of its call
-- was done: where the run is, and the event id that is there under another key.
CREATE TYPE hf.appended AS (
    run_seq bigint, known_type text, known_data text, known_more text, last_seq bigint, twice uuid
);

CREATE TYPE hf.new_event AS (
    key text, event_id uuid, event_type text, emitted_at bigint, data text, more text
);

-- A batch in which everything is new and as expected: the numbers of its events, in their order.
-- Otherwise null, and nothing was done.
--
-- One statement: it adds to the runs, in their order, how many events they get, which locks them
-- and tells the numbers. That something was not new is then the index's to say. `p_expected` is
-- by event: where the run must be just before it.
CREATE FUNCTION hf.append_new(
    p_namespaces text[],
    p_run_ids text[],
    p_expected bigint[],
    p_keys text[],
    p_event_ids uuid[],
    p_types text[],
    p_emitted bigint[],
    p_data text[],
    p_more text[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
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
        INSERT INTO hf.runs AS r (namespace, run_id, last_seq, feed_xid)
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
        SELECT hf.now_us() AS now FROM (SELECT count(*) FROM heads) AS locked
    ),
    numbered AS MATERIALIZED (
        SELECT i.*, h.id AS run, h.feed_xid, h.last_seq - i.followers AS run_seq
        FROM items AS i
        JOIN heads AS h ON h.namespace = i.namespace AND h.run_id = i.run_id
        ORDER BY i.item
    ),
    added AS (
        INSERT INTO hf.events (
            namespace, feed_xid, commit_id, run, run_seq, key, event_id, event_type,
            emitted_at, persisted_at, data, more
        )
        SELECT
            n.namespace, n.feed_xid, nextval('hf.commit_ids'), n.run, n.run_seq, n.key, n.event_id,
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

-- One call: events of one run, by the rule of facets/events.py. The run is locked.
CREATE FUNCTION hf.append_call(
    p_run hf.runs, p_events hf.new_event[], p_expected bigint, p_now bigint
) RETURNS SETOF hf.appended
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_seq bigint := p_run.last_seq;
    v_xid xid8 := greatest(pg_current_xact_id(), p_run.feed_xid);
    v_event hf.new_event;
    v_known record;
    v_twice boolean;
    v_other uuid;
BEGIN
    FOREACH v_event IN ARRAY p_events LOOP
        SELECT e.run_seq, e.event_type, e.data, e.more INTO v_known
        FROM hf.events AS e
        WHERE e.run = p_run.id AND e.key = v_event.key;
        IF FOUND THEN
            RETURN NEXT ROW(
                v_known.run_seq, v_known.event_type, v_known.data, v_known.more, NULL, NULL
            )::hf.appended;
            CONTINUE;
        END IF;
        v_twice := EXISTS (
            SELECT 1 FROM hf.events AS e
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
                SELECT 1 FROM hf.events AS e WHERE e.run = p_run.id AND e.key = n.key
            ) AND (
                EXISTS (
                    SELECT 1 FROM hf.events AS e
                    WHERE e.run = p_run.id AND e.event_id = n.event_id
                ) OR EXISTS (
                    SELECT 1 FROM unnest(p_events[:n.item - 1]) AS o
                    WHERE o.event_id = n.event_id AND o.key <> n.key
                )
            )
            ORDER BY n.item
            LIMIT 1;
            RETURN NEXT ROW(NULL, NULL, NULL, NULL, p_run.last_seq, v_other)::hf.appended;
            RETURN;
        END IF;
        v_seq := v_seq + 1;
        INSERT INTO hf.events (
            namespace, feed_xid, commit_id, run, run_seq, key, event_id, event_type,
            emitted_at, persisted_at, data, more
        )
        VALUES (
            p_run.namespace, v_xid, nextval('hf.commit_ids'), p_run.id, v_seq, v_event.key,
            v_event.event_id, v_event.event_type, coalesce(v_event.emitted_at, p_now), p_now,
            v_event.data, v_event.more
        );
        RETURN NEXT ROW(v_seq, NULL, NULL, NULL, NULL, NULL)::hf.appended;
    END LOOP;
    IF v_seq > p_run.last_seq THEN
        UPDATE hf.runs AS r
        SET last_seq = v_seq, feed_xid = v_xid
        WHERE r.id = p_run.id;
    END IF;
END
$$;

-- A batch of calls; the events of a call have its number, and answers are in their order. Of a
-- refused call there is one answer.
--
-- Runs are locked in their order, so two batches never wait for each other in a circle, and what
-- is decided is read after that, by later statements.
CREATE FUNCTION hf.append_events(
    p_calls bigint[],
    p_namespaces text[],
    p_run_ids text[],
    p_expected bigint[],
    p_keys text[],
    p_event_ids uuid[],
    p_types text[],
    p_emitted bigint[],
    p_data text[],
    p_more text[]
) RETURNS TABLE (call bigint, answer hf.appended)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint;
    v_call record;
    v_run hf.runs;
    v_twice text;
BEGIN
    -- Also what is there already: one statement locks all of them, in the order of append_new.
    INSERT INTO hf.runs AS r (namespace, run_id, last_seq, feed_xid)
    SELECT d.namespace, d.run_id, 0, pg_current_xact_id()
    FROM (
        SELECT DISTINCT i.namespace, i.run_id
        FROM unnest(p_namespaces, p_run_ids) AS i (namespace, run_id)
    ) AS d
    ORDER BY d.namespace COLLATE "C", d.run_id COLLATE "C"
    ON CONFLICT (namespace, run_id) WHERE NOT gone DO UPDATE SET last_seq = r.last_seq;
    v_now := hf.now_us();

    FOR v_call IN
        SELECT
            i.call, min(i.namespace) AS namespace, min(i.run_id) AS run_id,
            min(i.expected) AS expected,
            array_agg(
                ROW(i.key, i.event_id, i.event_type, i.emitted_at, i.data, i.more)::hf.new_event
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
        FROM hf.runs AS o
        WHERE o.namespace = v_call.namespace AND o.run_id = v_call.run_id AND NOT o.gone;
        IF cardinality(v_call.events) = 1 THEN
            FOR answer IN
                SELECT * FROM hf.append_call(v_run, v_call.events, v_call.expected, v_now)
            LOOP
                RETURN NEXT;
            END LOOP;
            CONTINUE;
        END IF;
        BEGIN
            RETURN QUERY
            SELECT v_call.call, a::hf.appended
            FROM hf.append_call(v_run, v_call.events, v_call.expected, v_now) AS a;
        EXCEPTION WHEN SQLSTATE 'HF001' THEN
            GET STACKED DIAGNOSTICS v_twice = PG_EXCEPTION_DETAIL;
            answer := ROW(NULL, NULL, NULL, NULL, v_run.last_seq, v_twice::uuid)::hf.appended;
            RETURN NEXT;
        END;
    END LOOP;
END
$$;

-- Hides a run at once and drops events of what is hidden; true when nothing is left.
CREATE FUNCTION hf.delete_run(p_namespace text, p_run_id text, p_limit bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_run bigint;
    v_count bigint;
BEGIN
    UPDATE hf.runs AS r
    SET gone = true
    WHERE r.namespace = p_namespace AND r.run_id = p_run_id AND NOT r.gone;
    FOR v_run IN
        SELECT r.id FROM hf.runs AS r WHERE r.gone ORDER BY r.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM hf.events AS e
        WHERE e.run = v_run
          AND e.run_seq > (
              SELECT coalesce(max(o.run_seq), 0) - p_limit FROM hf.events AS o WHERE o.run = v_run
          );
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count = p_limit THEN
            RETURN false;
        END IF;
        DELETE FROM hf.run_views AS s WHERE s.run = v_run;
        DELETE FROM hf.runs AS r WHERE r.id = v_run;
    END LOOP;
    RETURN true;
END
$$;

-- Begins a new epoch if this is not the cluster of the last one; False if it is. Now with events.
CREATE OR REPLACE FUNCTION hf.begin_epoch() RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_cluster text := hf.cluster();
    v_epoch bigint;
    v_commit bigint;
    v_first_unused xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    -- Waits for writers in flight and keeps new ones out: all commit ids drawn so far are
    -- committed then.
    LOCK TABLE hf.cell_versions, hf.record_changes, hf.messages, hf.events
    IN SHARE ROW EXCLUSIVE MODE;
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
    -- Ids that this cluster has yet to give out would hold what is new back until then.
    UPDATE hf.cells SET feed_xid = '0' WHERE feed_xid >= v_first_unused;
    UPDATE hf.runs SET feed_xid = '0' WHERE feed_xid >= v_first_unused;
    RETURN true;
END
$$;
