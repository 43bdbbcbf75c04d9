"""PostgreSQL array literals.

psycopg adapts a list item by item in Python: with six arrays per call that was
most of the client's time. The text form is one join.
"""

from __future__ import annotations

from collections.abc import Iterable


def text_array(items: Iterable[str | None]) -> str:
    """The literal of a text[]; None becomes NULL."""
    return "{" + ",".join(map(_quoted, items)) + "}"


def plain_array(items: Iterable[object]) -> str:
    """The literal of an array whose elements need no quoting: numbers, booleans, UUIDs."""
    return "{" + ",".join(map(str, items)) + "}"


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
