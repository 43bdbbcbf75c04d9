"""Which namespaces a store has: each table is asked for the next name, and the next."""

from __future__ import annotations

from holdfast.backends.sql.db import Db
from holdfast.backends.sql.queries import Dialect

# Each has an index that begins with the namespace.
_TABLES = ("cell_versions", "records", "messages", "groups", "runs")

# As many looks into the index as there are namespaces: DISTINCT would read every entry.
_QUERY = """
WITH RECURSIVE found (name) AS (
    SELECT min(t.namespace)
    FROM hf.{table} AS t
    UNION ALL
    SELECT (SELECT min(t.namespace) FROM hf.{table} AS t WHERE t.namespace > f.name)
    FROM found AS f
    WHERE f.name IS NOT NULL
)
SELECT name
FROM found
WHERE name IS NOT NULL
"""


async def list_namespaces(db: Db, dialect: Dialect) -> list[str]:
    """The namespaces that have cells, records, messages, groups or events, in byte order."""
    names: set[str] = set()
    for table in _TABLES:
        rows = await db.fetch(dialect.spell(_QUERY.format(table=table)), {})
        names.update(name for (name,) in rows)
    return sorted(names, key=str.encode)
