"""Named queries, kept in `.sql` files beside the code that uses them.

    -- name: get_cell
    -- why it is as it is
    SELECT … FROM hf.cells WHERE name = :name

One text serves both engines. `hf.` stands for where our tables live: a schema
on PostgreSQL, a prefix on SQLite, where the caller's tables share the file.
Parameters are written `:name`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_HOME = re.compile(r"\bhf\.")


class Dialect(NamedTuple):
    """How an engine spells what the shared texts leave open."""

    home: str  # replaces "hf."
    parameter: str  # a format string with the parameter's name

    def spell(self, text: str) -> str:
        """The query text as this engine's driver wants it."""
        return _PARAMETER.sub(lambda match: self.parameter.format(match[1]), self.place(text))

    def place(self, text: str) -> str:
        """The text with our tables' home filled in, for scripts without parameters."""
        return _HOME.sub(lambda _: self.home, text)


SQLITE = Dialect(home="holdfast_", parameter=":{}")


def postgres(schema: str) -> Dialect:
    """The dialect for tables in that schema."""
    # Quoted, because a schema may be named like a keyword.
    return Dialect(home=f'"{schema}".', parameter="%({})s")


@cache
def load(package: str, file: str, dialect: Dialect) -> dict[str, str]:
    """The queries of one file by name."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    pieces = _NAME.split(text)
    names, bodies = pieces[1::2], pieces[2::2]
    return {
        name: dialect.spell(_COMMENT.sub("", body).strip().rstrip(";"))
        for name, body in zip(names, bodies, strict=True)
    }
