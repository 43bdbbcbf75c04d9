-- Room on the page, and no index on what a plain write changes: updates stay in place (HOT).
CREATE TABLE hf.records (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- See sql/records.py. NULL: it was deleted, and its last operation is remembered.
    fields jsonb,
    -- From then on it is absent; a deleted one's row may go.
    expires_at bigint,
    updated_at bigint NOT NULL,
    commit_id bigint NOT NULL,
    feed_xid xid8 NOT NULL,
    op_id uuid NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 70);

CREATE INDEX records_by_expiry ON hf.records (expires_at) WHERE expires_at IS NOT NULL;

-- The log of changes. Only the newest entry of a record counts: the one with its commit id. Unlike
-- a cell's versions entries need not be in order, because each tells the record as it is now.
CREATE TABLE hf.record_changes (
    namespace text COLLATE "C" NOT NULL,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL,
    PRIMARY KEY (namespace, feed_xid, commit_id)
);

-- For cutting the log. Not BRIN: until the next vacuum that tells nothing about new pages, so each
-- look for old entries among 100,000 new ones read them all.
CREATE INDEX record_changes_by_age ON hf.record_changes (changed_at);

-- Entries up to here may be gone.
CREATE TABLE hf.record_floors (
    namespace text COLLATE "C" PRIMARY KEY,
    feed_xid xid8 NOT NULL,
    commit_id bigint NOT NULL
);

CREATE TABLE hf.record_indexes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    prefix text COLLATE "C" NOT NULL,
    fields text[] NOT NULL,
    -- Older records up to this key are in it; NULL: all are.
    filled_upto text COLLATE "C",
    UNIQUE (namespace, prefix, fields)
);

-- Rises with every index. See write_record.
ALTER TABLE hf.store_state ADD COLUMN record_indexes bigint NOT NULL DEFAULT 0;

CREATE TABLE hf.record_index_entries (
    index_id bigint NOT NULL,
    lead text COLLATE "C" NOT NULL,
    sort text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (index_id, lead, sort, key)
);

-- A field's bytes; see sql/records.py for the mark.
CREATE FUNCTION hf.field_bytes(p_text text) RETURNS bytea
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN left(p_text, 1) = U&'\0001' THEN decode(substr(p_text, 2), 'base64')
    ELSE convert_to(p_text, 'UTF8')
END;

-- The places of a field's value in an index, the same as in facets/records_scan.py: among the
-- first fields, and as the last one.
CREATE FUNCTION hf.field_lead(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN encode(substr(hf.field_bytes(p_text), 1, 32), 'hex');

CREATE FUNCTION hf.field_sort(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_text !~ '^(0|-?[1-9][0-9]{0,18})$'
        OR p_text::numeric NOT BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN 't' || hf.field_lead(p_text)
    WHEN left(p_text, 1) = '-'
        THEN 'n0' || translate(lpad(substr(p_text, 2), 19, '0'), '0123456789', '9876543210')
    ELSE 'n1' || lpad(p_text, 19, '0')
END;

-- A record's place in an index; both NULL if it lacks one of the fields.
CREATE FUNCTION hf.record_place(p_fields text[], p_record jsonb, OUT lead text, OUT sort text)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_last integer := array_length(p_fields, 1);
BEGIN
    IF p_record IS NULL OR NOT p_record ?& p_fields THEN
        RETURN;
    END IF;
    SELECT coalesce(string_agg(hf.field_lead(p_record ->> f.name), '.' ORDER BY f.item), '')
    INTO lead
    FROM unnest(p_fields[1:v_last - 1]) WITH ORDINALITY AS f (name, item);
    sort := hf.field_sort(p_record ->> p_fields[v_last]);
END
$$;

-- Moves a record's entries from where they were to where they belong.
CREATE FUNCTION hf.reindex_record(
    p_namespace text, p_key text, p_before jsonb, p_after jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_index record;
    v_was record;
    v_is record;
BEGIN
    FOR v_index IN
        SELECT i.id, i.fields
        FROM hf.record_indexes AS i
        WHERE i.namespace = p_namespace AND starts_with(p_key, i.prefix)
        ORDER BY i.id
    LOOP
        v_was := hf.record_place(v_index.fields, p_before);
        v_is := hf.record_place(v_index.fields, p_after);
        CONTINUE WHEN v_was IS NOT DISTINCT FROM v_is;
        IF v_was.sort IS NOT NULL THEN
            DELETE FROM hf.record_index_entries AS e
            WHERE e.index_id = v_index.id
              AND e.lead = v_was.lead
              AND e.sort = v_was.sort
              AND e.key = p_key;
        END IF;
        IF v_is.sort IS NOT NULL THEN
            INSERT INTO hf.record_index_entries (index_id, lead, sort, key)
            VALUES (v_index.id, v_is.lead, v_is.sort, p_key)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
END
$$;

-- One write, by the rule of facets/records.py: true if it applied, NULL if nobody can tell.
--
-- A function and not one statement, because a statement sees the snapshot of its start: what
-- must be true after a row's lock was waited for has to be read by a later statement. An index is
-- made under a lock that keeps writers out, so each write sees every index or comes before it;
-- only a transaction whose snapshot is older (the caller's own, joined) does not, and is ended.
CREATE FUNCTION hf.write_record(
    p_namespace text,
    p_key text,
    p_expect jsonb,       -- null: must be absent
    p_set jsonb,          -- null: is removed
    p_stamps jsonb,       -- fields that become the time, so many microseconds from now
    p_replace boolean,
    p_must_exist boolean,
    p_ttl_us bigint,      -- -1: stays, 0: none
    p_op_id uuid,
    p_asked_ago_us bigint,  -- of a repeat, and some slack; else NULL
    p_now bigint          -- the batch's time; NULL for a write alone
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_row hf.records%ROWTYPE;
    v_there boolean;
    v_now bigint := coalesce(p_now, hf.now_us());
    v_before jsonb;
    v_after jsonb;
    v_expires_at bigint;
    v_commit bigint;
    v_xid xid8;
BEGIN
    LOOP
        SELECT * INTO v_row
        FROM hf.records AS r
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

        v_commit := nextval('hf.commit_ids');
        v_xid := pg_current_xact_id();
        IF v_there THEN
            UPDATE hf.records AS r
            SET fields = v_after, expires_at = v_expires_at, updated_at = v_now,
                commit_id = v_commit, feed_xid = v_xid, op_id = p_op_id
            WHERE r.namespace = p_namespace AND r.key = p_key;
            EXIT;
        END IF;
        INSERT INTO hf.records
            (namespace, key, fields, expires_at, updated_at, commit_id, feed_xid, op_id)
        VALUES (p_namespace, p_key, v_after, v_expires_at, v_now, v_commit, v_xid, p_op_id)
        ON CONFLICT DO NOTHING;
        -- If somebody else was faster, all is looked at again.
        EXIT WHEN FOUND;
    END LOOP;

    INSERT INTO hf.record_changes (namespace, feed_xid, commit_id, key, changed_at)
    VALUES (p_namespace, v_xid, v_commit, p_key, v_now);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM 1 FROM hf.store_state FOR SHARE;
    END IF;
    IF EXISTS (SELECT 1 FROM hf.record_indexes) THEN
        -- Also what had expired has its entries still.
        PERFORM hf.reindex_record(p_namespace, p_key, v_row.fields, v_after);
    END IF;
    RETURN true;
END
$$;

-- A batch of writes, answered by their place in it. Rows are locked in key order, so two batches
-- never wait for each other in a circle.
CREATE FUNCTION hf.write_records(
    p_namespaces text[],
    p_keys text[],
    p_expect jsonb[],
    p_set jsonb[],
    p_stamps jsonb[],
    p_replace boolean[],
    p_must_exist boolean[],
    p_ttl_us bigint[],
    p_op_ids uuid[],
    p_asked_ago_us bigint[]
) RETURNS TABLE (item bigint, applied boolean)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
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
        applied := hf.write_record(
            v_write.namespace, v_write.key, v_write.expect, v_write.set, v_write.stamps,
            v_write.replace, v_write.must_exist, v_write.ttl_us, v_write.op_id,
            v_write.asked_ago_us, v_now
        );
        RETURN NEXT;
    END LOOP;
END
$$;

-- Buries up to so many expired records, drops what was buried long ago, and cuts the log by up to
-- so many entries; tells how many of each.
CREATE FUNCTION hf.purge_records(p_limit bigint, OUT gone bigint, OUT cut bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint := hf.now_us();
    v_row record;
    v_commit bigint;
BEGIN
    gone := 0;
    -- What somebody else is writing to is not expired, or is theirs to bury.
    FOR v_row IN
        SELECT r.namespace, r.key, r.fields
        FROM hf.records AS r
        WHERE r.expires_at <= v_now
        ORDER BY r.expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        gone := gone + 1;
        IF v_row.fields IS NULL THEN
            DELETE FROM hf.records AS r
            WHERE r.namespace = v_row.namespace AND r.key = v_row.key;
            CONTINUE;
        END IF;
        v_commit := nextval('hf.commit_ids');
        UPDATE hf.records AS r
        SET fields = NULL, expires_at = v_now + 86400000000, commit_id = v_commit,
            feed_xid = pg_current_xact_id()
        WHERE r.namespace = v_row.namespace AND r.key = v_row.key;
        INSERT INTO hf.record_changes (namespace, feed_xid, commit_id, key, changed_at)
        VALUES (v_row.namespace, pg_current_xact_id(), v_commit, v_row.key, v_now);
        PERFORM hf.reindex_record(v_row.namespace, v_row.key, v_row.fields, NULL);
    END LOOP;

    -- Mostly nothing is old, and the index's first entry tells.
    cut := 0;
    IF (SELECT min(c.changed_at) FROM hf.record_changes AS c) >= v_now - 86400000000 THEN
        RETURN;
    END IF;
    WITH old AS (
        SELECT c.ctid AS place
        FROM hf.record_changes AS c
        WHERE c.changed_at < v_now - 86400000000
        ORDER BY c.changed_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ),
    dropped AS (
        -- By their places, which are locked: joined by keys, all entries might be read.
        DELETE FROM hf.record_changes AS c
        WHERE c.ctid = ANY (ARRAY(SELECT o.place FROM old AS o))
        RETURNING c.namespace, c.feed_xid, c.commit_id
    ),
    floors AS (
        INSERT INTO hf.record_floors AS f (namespace, feed_xid, commit_id)
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

-- Notes an index: every write from now on keeps it.
CREATE FUNCTION hf.create_record_index(
    p_namespace text, p_prefix text, p_fields text[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    LOCK TABLE hf.records IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO hf.record_indexes (namespace, prefix, fields, filled_upto)
    VALUES (p_namespace, p_prefix, p_fields, '')
    ON CONFLICT DO NOTHING;
    UPDATE hf.store_state SET record_indexes = record_indexes + 1;
    RETURN true;
END
$$;

-- Puts the next so many older records into an index; true when there are no more. Their rows are
-- locked, or a writer could take an entry away before it is there.
CREATE FUNCTION hf.fill_record_index(
    p_namespace text, p_prefix text, p_end text, p_fields text[], p_limit bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
    v_upto text;
    v_row record;
    v_looked bigint := 0;
    v_place record;
BEGIN
    SELECT i.id, i.filled_upto INTO v_id, v_upto
    FROM hf.record_indexes AS i
    WHERE i.namespace = p_namespace AND i.prefix = p_prefix AND i.fields = p_fields
    FOR UPDATE;
    IF v_upto IS NULL THEN
        RETURN true;
    END IF;
    FOR v_row IN
        SELECT r.key, r.fields
        FROM hf.records AS r
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
        v_place := hf.record_place(p_fields, v_row.fields);
        IF v_place.sort IS NOT NULL THEN
            INSERT INTO hf.record_index_entries (index_id, lead, sort, key)
            VALUES (v_id, v_place.lead, v_place.sort, v_row.key)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    UPDATE hf.record_indexes AS i
    SET filled_upto = CASE WHEN v_looked = p_limit THEN v_upto END
    WHERE i.id = v_id;
    RETURN v_looked < p_limit;
END
$$;

-- The id of the index that is gone, NULL if there was none. Its entries are dropped afterwards,
-- when nobody adds any and no writer waits for the lock.
CREATE FUNCTION hf.drop_record_index(
    p_namespace text, p_prefix text, p_fields text[]
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_id bigint;
BEGIN
    LOCK TABLE hf.records IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM hf.record_indexes AS i
    WHERE i.namespace = p_namespace AND i.prefix = p_prefix AND i.fields = p_fields
    RETURNING i.id INTO v_id;
    RETURN v_id;
END
$$;
