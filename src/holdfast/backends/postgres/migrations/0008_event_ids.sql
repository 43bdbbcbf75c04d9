-- Which id a refusal names: an event whose key the call itself has said before is not new, whatever
-- its id. Nothing else has changed. (The index of ids stays: a large table's is not built anew for
-- what has not been measured here.)
CREATE OR REPLACE FUNCTION hf.append_call(
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
            ) AND NOT EXISTS (
                SELECT 1 FROM unnest(p_events[:n.item - 1]) AS o WHERE o.key = n.key
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
