-- Search on PostgreSQL: a table of tsvectors with a GIN index. After set(a)='one', fork(b),
-- set(a)='two' in the namespace 'default':
--
--   search  (main, 'a', 10, ':default' 'a' 'one': b sees it)  (main, 'a', 11, ':default' 'a' 'two')
--
-- The words are made here and not by to_tsvector, whose parser keeps addresses and paths whole and
-- goes by the database's locale: they are what SQLite's FTS5 makes of the same text.

-- name: get_state
-- Not to_regclass(): it may answer from what the session remembers.
SELECT
    count(*) FILTER (WHERE c.relname = 'search') > 0,
    count(*) FILTER (WHERE c.relname = 'search_progress') > 0
FROM pg_class AS c
WHERE c.relname IN ('search', 'search_progress')
  AND c.relnamespace = (SELECT s.relnamespace FROM pg_class AS s WHERE s.oid = 'hf.cells'::regclass)

-- name: install
CREATE TABLE hf.search (
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    commit_id bigint NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (namespace, branch_id, name, commit_id)
);

CREATE INDEX search_by_word ON hf.search USING gin (words);

-- One row: the cell up to which old ones are indexed, and how many those are.
CREATE TABLE hf.search_progress (
    namespace text COLLATE "C" NOT NULL,
    branch_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    done bigint NOT NULL,
    total bigint NOT NULL
);

INSERT INTO hf.search_progress (namespace, branch_id, name, done, total)
SELECT '', 0, '', 0, count(*) FROM hf.cells;

-- Keys, texts and numbers inside a value. Bytes are an object of the one key $bytes: see codec.py.
-- Numbers that need an exponent are left out: here they would be words of 300 digits.
CREATE FUNCTION hf.search_text(p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
WITH RECURSIVE part (key, item) AS (
    SELECT NULL::text, p_value
    UNION ALL
    SELECT i.key, i.value
    FROM part AS p
    CROSS JOIN LATERAL (
        SELECT o.key, o.value
        FROM jsonb_each(CASE WHEN jsonb_typeof(p.item) = 'object' THEN p.item END) AS o
        WHERE p.item <> jsonb_build_object('$bytes', p.item -> '$bytes')
        UNION ALL
        SELECT NULL, a.value
        FROM jsonb_array_elements(CASE WHEN jsonb_typeof(p.item) = 'array' THEN p.item END) AS a
    ) AS i
)
SELECT string_agg(
    concat_ws(' ', p.key, CASE jsonb_typeof(p.item)
        WHEN 'string' THEN p.item #>> '{}'
        WHEN 'number' THEN CASE
            WHEN p.item = '0' OR abs(p.item::numeric) BETWEEN 1e-4 AND 1e19 THEN p.item #>> '{}'
        END
    END),
    ' '
)
FROM part AS p
$$;

-- The namespace is a word too, with a sign in front that no other has: hits elsewhere need not be
-- looked at. The server takes no word beyond 2046 bytes and no NUL in JSON.
CREATE FUNCTION hf.search_words(p_namespace text, p_name text, p_value text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_text text := p_name;
    v_words text;
BEGIN
    IF octet_length(p_value) <= 262144 THEN
        IF strpos(p_value, '\u0000') > 0 THEN
            p_value := regexp_replace(p_value, '(?<!\\)((?:\\\\)*)\\u0000', '\1 ', 'g');
        END IF;
        v_text := concat_ws(' ', v_text, hf.search_text(p_value::jsonb));
    END IF;
    SELECT string_agg(quote_literal(w.word) || ':' || w.places, ' ') INTO v_words
    FROM (
        SELECT
            CASE
                WHEN f.word ~ '[{capitals}]' THEN translate(f.word, '{upper}', '{lower}')
                ELSE f.word
            END AS word,
            string_agg(least(f.place, 16383)::text, ',') AS places
        FROM (
            SELECT lower(left(m.found[1], 400) COLLATE "C") AS word, m.place
            FROM regexp_matches(v_text, '[{letters}]+', 'g') WITH ORDINALITY AS m (found, place)
        ) AS f
        GROUP BY 1
    ) AS w;
    RETURN array_to_tsvector(ARRAY[':' || p_namespace]) || coalesce(v_words, '')::tsvector;
END
$$;

-- With the rights of whoever turned search on: writers need none of their own on the index.
CREATE FUNCTION hf.search_add() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before bigint;
BEGIN
    -- The version before is out of sight now, unless a branch was forked from it.
    SELECT max(v.commit_id) INTO v_before
    FROM hf.cell_versions AS v
    WHERE v.namespace = NEW.namespace
      AND v.branch_id = NEW.branch_id
      AND v.name = NEW.name
      AND v.commit_id < NEW.commit_id;
    IF v_before IS NOT NULL AND NOT EXISTS (
        SELECT 1
        FROM hf.branches AS b
        WHERE b.namespace = NEW.namespace
          AND b.parent_id = NEW.branch_id
          AND b.fork_commit >= v_before
    ) THEN
        DELETE FROM hf.search AS s
        WHERE s.namespace = NEW.namespace
          AND s.branch_id = NEW.branch_id
          AND s.name = NEW.name
          AND s.commit_id = v_before;
    END IF;
    IF NEW.value IS NOT NULL THEN
        INSERT INTO hf.search (namespace, branch_id, name, commit_id, words)
        VALUES (
            NEW.namespace, NEW.branch_id, NEW.name, NEW.commit_id,
            hf.search_words(NEW.namespace, NEW.name, NEW.value)
        );
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION hf.search_drop() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM hf.search AS s
    WHERE s.namespace = OLD.namespace
      AND s.branch_id = OLD.branch_id
      AND s.name = OLD.name
      AND s.commit_id = OLD.commit_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER search_add AFTER INSERT ON hf.cell_versions
FOR EACH ROW EXECUTE FUNCTION hf.search_add();

CREATE TRIGGER search_drop AFTER DELETE ON hf.cell_versions
FOR EACH ROW EXECUTE FUNCTION hf.search_drop();

-- Indexes the next old cells; false at the end. Whoever calls has the advisory lock. The cells'
-- rows are locked first, so that nobody writes to them between the look and the insert. What the
-- triggers did already stays.
CREATE FUNCTION hf.search_build(p_limit bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_namespace text;
    v_branch bigint;
    v_name text;
    v_names text[];
    v_branches bigint[];
    v_namespaces text[];
BEGIN
    SELECT p.namespace, p.branch_id, p.name INTO v_namespace, v_branch, v_name
    FROM hf.search_progress AS p;
    SELECT array_agg(p.namespace), array_agg(p.branch_id), array_agg(p.name)
    INTO v_namespaces, v_branches, v_names
    FROM (
        SELECT c.namespace, c.branch_id, c.name
        FROM hf.cells AS c
        WHERE (c.namespace, c.branch_id, c.name) > (v_namespace, v_branch, v_name)
        ORDER BY c.namespace, c.branch_id, c.name
        LIMIT p_limit
        FOR SHARE
    ) AS p;
    IF v_names IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO hf.search (namespace, branch_id, name, commit_id, words)
    SELECT
        v.namespace, v.branch_id, v.name, v.commit_id,
        hf.search_words(v.namespace, v.name, v.value)
    FROM unnest(v_namespaces, v_branches, v_names) AS p (namespace, branch_id, name)
    CROSS JOIN LATERAL (
        SELECT
            o.namespace, o.branch_id, o.name, o.commit_id, o.value,
            lead(o.commit_id) OVER (ORDER BY o.commit_id) AS next_commit
        FROM hf.cell_versions AS o
        WHERE o.namespace = p.namespace AND o.branch_id = p.branch_id AND o.name = p.name
    ) AS v
    WHERE v.value IS NOT NULL
      AND (v.next_commit IS NULL OR EXISTS (
        SELECT 1
        FROM hf.branches AS b
        WHERE b.namespace = v.namespace
          AND b.parent_id = v.branch_id
          AND b.fork_commit >= v.commit_id
          AND b.fork_commit < v.next_commit
      ))
    ON CONFLICT DO NOTHING;
    UPDATE hf.search_progress
    SET namespace = v_namespaces[cardinality(v_names)],
        branch_id = v_branches[cardinality(v_names)],
        name = v_names[cardinality(v_names)],
        done = done + cardinality(v_names);
    RETURN true;
END
$$;

-- Who may read the cells may search them.
DO $$
DECLARE
    v_reader text;
BEGIN
    FOR v_reader IN
        SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class AS c
        CROSS JOIN LATERAL aclexplode(c.relacl) AS a
        WHERE c.oid = 'hf.cell_versions'::regclass
          AND a.privilege_type = 'SELECT'
    LOOP
        EXECUTE 'GRANT SELECT ON hf.search TO ' || v_reader;
    END LOOP;
END
$$

-- name: build
SELECT hf.search_build(:limit::bigint)

-- name: get_progress
SELECT done, greatest(done, total) FROM hf.search_progress

-- name: finish
DROP TABLE IF EXISTS hf.search_progress;
ANALYZE hf.search

-- name: remove
DROP TRIGGER IF EXISTS search_add ON hf.cell_versions;
DROP TRIGGER IF EXISTS search_drop ON hf.cell_versions;
DROP FUNCTION IF EXISTS
    hf.search_build, hf.search_add, hf.search_drop, hf.search_words, hf.search_text;
DROP TABLE IF EXISTS hf.search_progress;
DROP TABLE IF EXISTS hf.search

-- name: search_cells
-- Seen is the newest version on the first level of the lineage that has any.
WITH lineage (branch_id, upto, level) AS (
    SELECT l.branch_id, l.upto, l.level
    FROM unnest(:branches::bigint[], :uptos::bigint[]) WITH ORDINALITY AS l (branch_id, upto, level)
)
SELECT s.name, ts_rank(s.words, :words::tsquery, 1)::double precision AS score
FROM hf.search AS s
JOIN lineage AS l ON l.branch_id = s.branch_id AND s.commit_id <= l.upto
WHERE s.words @@ (:place::tsquery && :words::tsquery)
  AND s.namespace = :namespace
  AND NOT EXISTS (
    SELECT 1
    FROM lineage AS n
    JOIN hf.cell_versions AS o
      ON o.namespace = :namespace
     AND o.branch_id = n.branch_id
     AND o.name = s.name
     AND o.commit_id <= n.upto
    WHERE n.level < l.level OR (n.level = l.level AND o.commit_id > s.commit_id)
  )
ORDER BY score DESC, s.name
LIMIT :limit::bigint
