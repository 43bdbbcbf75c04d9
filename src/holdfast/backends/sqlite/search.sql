-- Search on SQLite: an FTS5 table without content, whose rowids are commit ids.
--
-- The triggers use nothing but what SQLite itself has, so that every tool with FTS5 can go on
-- writing to the file. After set(a)='one', fork(b), set(a)='two':
--
--   search  (10, 'one': b sees it)  (11, 'two')

-- name: get_state
SELECT
    EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_search'),
    EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_search_progress')

-- name: install
-- `place` is the namespace as one word: other namespaces' hits need not be looked at.
-- FTS5 knows Unicode 6.1 and takes whatever came later for letters: emoji must not be.
CREATE VIRTUAL TABLE hf.search USING fts5(
    place, words, content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 0 separators '{emoji}'"
);

CREATE TABLE hf.search_progress (
    done INTEGER NOT NULL,
    total INTEGER NOT NULL
) STRICT;

INSERT INTO hf.search_progress (done, total)
SELECT 0, coalesce(max(commit_id), 0) FROM hf.cell_versions;

-- Bytes are an object of the one key $bytes: see codec.py. A list's keys are numbers. Numbers
-- that need an exponent are left out, as on PostgreSQL.
CREATE VIEW hf.search_words (commit_id, place, words) AS
SELECT v.commit_id, 'ns' || hex(v.namespace), v.name || ' ' || coalesce((
    SELECT group_concat(
        CASE WHEN typeof(t.key) = 'text' THEN t.key ELSE '' END || ' '
        || CASE
            WHEN t.type IN ('text', 'integer') THEN t.atom
            WHEN t.type = 'real' AND (t.atom = 0 OR abs(t.atom) BETWEEN 1e-4 AND 1e15) THEN t.atom
            ELSE ''
        END,
        ' '
    )
    FROM (
        SELECT j.key, j.atom, j.type, count(*) OVER (PARTITION BY j.parent) AS siblings
        FROM json_tree(v.value) AS j
    ) AS t
    WHERE octet_length(v.value) <= 262144
      AND NOT (t.key IS '$bytes' AND t.siblings = 1)
), '')
FROM hf.cell_versions AS v
WHERE v.value IS NOT NULL;

-- The version before is out of sight now, unless a branch was forked from it.
CREATE TRIGGER hf.search_add AFTER INSERT ON hf.cell_versions
BEGIN
    DELETE FROM hf.search
    WHERE rowid = (
        SELECT p.commit_id
        FROM (
            SELECT max(v.commit_id) AS commit_id
            FROM hf.cell_versions AS v
            WHERE v.namespace = NEW.namespace
              AND v.branch_id = NEW.branch_id
              AND v.name = NEW.name
              AND v.commit_id < NEW.commit_id
        ) AS p
        WHERE NOT EXISTS (
            SELECT 1
            FROM hf.branches AS b
            WHERE b.namespace = NEW.namespace
              AND b.parent_id = NEW.branch_id
              AND b.fork_commit >= p.commit_id
        )
    );
    INSERT INTO hf.search (rowid, place, words)
    SELECT w.commit_id, w.place, w.words
    FROM hf.search_words AS w
    WHERE w.commit_id = NEW.commit_id;
END;

CREATE TRIGGER hf.search_drop AFTER DELETE ON hf.cell_versions
BEGIN
    DELETE FROM hf.search WHERE rowid = OLD.commit_id;
END;

-- name: get_progress
SELECT done, total FROM hf.search_progress

-- name: find_page
-- The last of the next few versions.
SELECT max(v.commit_id)
FROM (
    SELECT commit_id
    FROM hf.cell_versions
    WHERE commit_id > :done
      AND commit_id <= :total
    ORDER BY commit_id
    LIMIT :limit
) AS v

-- name: index_page
-- What was written since the triggers were made is above :total.
INSERT INTO hf.search (rowid, place, words)
SELECT w.commit_id, w.place, w.words
FROM hf.cell_versions AS v
JOIN hf.search_words AS w ON w.commit_id = v.commit_id
WHERE v.commit_id > :done
  AND v.commit_id <= :last
  AND (
    NOT EXISTS (
        SELECT 1
        FROM hf.cell_versions AS n
        WHERE n.namespace = v.namespace
          AND n.branch_id = v.branch_id
          AND n.name = v.name
          AND n.commit_id > v.commit_id
    )
    OR EXISTS (
        SELECT 1
        FROM hf.branches AS b
        WHERE b.namespace = v.namespace
          AND b.parent_id = v.branch_id
          AND b.fork_commit >= v.commit_id
          AND b.fork_commit < (
            SELECT min(n.commit_id)
            FROM hf.cell_versions AS n
            WHERE n.namespace = v.namespace
              AND n.branch_id = v.branch_id
              AND n.name = v.name
              AND n.commit_id > v.commit_id
          )
    )
  )

-- name: set_progress
UPDATE hf.search_progress SET done = :last

-- name: finish
DROP TABLE hf.search_progress

-- name: remove
DROP TRIGGER IF EXISTS hf.search_add;
DROP TRIGGER IF EXISTS hf.search_drop;
DROP VIEW IF EXISTS hf.search_words;
DROP TABLE IF EXISTS hf.search_progress;
DROP TABLE IF EXISTS hf.search

-- name: search_cells
-- Seen is the newest version on the first level of the lineage that has any.
WITH lineage (level, branch_id, upto) AS MATERIALIZED (
    SELECT j.key, j.value ->> 0, j.value ->> 1
    FROM json_each(:lineage) AS j
)
SELECT v.name, -bm25(hf.search, 0.0, 1.0) AS score
FROM hf.search
JOIN hf.cell_versions AS v ON v.commit_id = hf.search.rowid
JOIN lineage AS l ON l.branch_id = v.branch_id AND v.commit_id <= l.upto
WHERE hf.search MATCH :query
  AND v.namespace = :namespace
  AND NOT EXISTS (
    SELECT 1
    FROM lineage AS n
    CROSS JOIN hf.cell_versions AS o
    WHERE o.namespace = :namespace
      AND o.branch_id = n.branch_id
      AND o.name = v.name
      AND o.commit_id <= n.upto
      AND (n.level < l.level OR (n.level = l.level AND o.commit_id > v.commit_id))
  )
ORDER BY score DESC, v.name
LIMIT :limit
