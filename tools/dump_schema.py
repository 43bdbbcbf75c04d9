"""Writes each engine's schema.sql from a database migrated from zero, or with --check compares.

schema.sql is what the migrations add up to: the file to read, and the proof that
a new migration did what was meant.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw

import holdfast
from holdfast.testing.postmaster import usable_install
from holdfast.testing.servers import PostgresServer

BACKENDS = Path(__file__).resolve().parent.parent / "src/holdfast/backends"
HEADER = "-- GENERATED from migrations/ by tools/dump_schema.py: add a migration instead.\n\n"
# What pg_dump says about itself and the session, and the guard that changes with every run.
_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog.*|\\(un)?restrict.*)?\n", re.MULTILINE)


def sqlite_schema() -> str:
    """What SQLite's migrations add up to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schema.db"
        holdfast.open(f"sqlite:///{path}").close()
        connection = apsw.Connection(str(path))
        rows = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY tbl_name, type DESC, name"
        ).fetchall()
        connection.close()
    return HEADER + "\n\n".join(f"{sql};" for (sql,) in rows) + "\n"


def postgres_schema() -> str:
    """What PostgreSQL's migrations add up to."""
    with PostgresServer("18") as server, tempfile.TemporaryDirectory() as folder:
        url = server.create_database()
        holdfast.open(url).close()
        dump = subprocess.run(
            [
                str(usable_install("18", Path(folder)) / "bin/pg_dump"),
                *("--schema-only", "--no-owner", "--no-privileges", "--schema=holdfast", url),
            ],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
    statements = re.split(r";\n\n+", _NOISE.sub("\n", dump).strip().rstrip(";"))
    return HEADER + "\n\n".join(f"{text.strip()};" for text in statements if text.strip()) + "\n"


def main() -> int:
    """Write the files, or compare them with --check; 1 when they differ."""
    stale = []
    for engine, dump in (("sqlite", sqlite_schema), ("postgres", postgres_schema)):
        file, wanted = BACKENDS / engine / "schema.sql", dump()
        if file.exists() and file.read_text(encoding="utf-8") == wanted:
            continue
        stale.append(engine)
        if "--check" not in sys.argv:
            file.write_text(wanted, encoding="utf-8")
            print(f"wrote the schema of {engine}")
    if stale and "--check" in sys.argv:
        print(f"schema.sql is not what the migrations add up to: {stale}; run make generate")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
