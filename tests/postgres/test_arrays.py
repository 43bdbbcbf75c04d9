"""Arrays as parameters: every item arrives as it was, in both forms that a cursor may want."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.backends.postgres.arrays import (
    Array,
    bigints,
    booleans,
    jsons,
    teach_arrays,
    texts,
    uuids,
)
from holdfast.testing.servers import CARELESS, PostgresServer

Cursor = psycopg.Cursor[Any]

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
BIGINT = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    with PostgresServer("18", settings=CARELESS) as server:
        url = server.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            teach_arrays(connection)
            yield connection


@pytest.fixture(scope="module", params=["binary", "literal"])
def cursor(request: pytest.FixtureRequest, connection: psycopg.Connection[Any]) -> Cursor:
    in_binary = request.param == "binary"
    return psycopg.Cursor(connection) if in_binary else psycopg.ClientCursor(connection)


def _back(cursor: Cursor, kind: str, array: Array) -> list[Any]:
    query = f"SELECT %(a)s::{kind}[]"
    ((items,),) = cursor.execute(query.encode(), {"a": array}).fetchall()
    found: list[Any] = items
    return found


_some = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_some
@given(items=st.lists(st.none() | TEXT))
def test_texts(cursor: Cursor, items: list[str | None]) -> None:
    assert _back(cursor, "text", texts(items)) == items


@pytest.mark.parametrize(
    "items",
    [[], [""], ["NULL"], [None], ["{}", ",", '"', "\\", '\\"', " a ", "ä\U0001f600"], ["%s", "'"]],
)
def test_texts_that_mean_something_elsewhere(cursor: Cursor, items: list[str | None]) -> None:
    assert _back(cursor, "text", texts(items)) == items


@_some
@given(items=st.lists(st.none() | BIGINT))
def test_bigints(cursor: Cursor, items: list[int | None]) -> None:
    assert _back(cursor, "bigint", bigints(items)) == items


@_some
@given(items=st.lists(st.booleans()))
def test_booleans(cursor: Cursor, items: list[bool]) -> None:
    assert _back(cursor, "boolean", booleans(items)) == items


@_some
@given(items=st.lists(st.uuids()))
def test_uuids(cursor: Cursor, items: list[UUID]) -> None:
    assert _back(cursor, "uuid", uuids(item.bytes for item in items)) == items


@_some
@given(items=st.lists(st.none() | st.dictionaries(TEXT, TEXT)))
def test_jsons(cursor: Cursor, items: list[dict[str, str] | None]) -> None:
    packed = [None if item is None else msgspec.json.encode(item) for item in items]
    assert _back(cursor, "jsonb", jsons(packed)) == items


def test_a_million_items(cursor: Cursor) -> None:
    query = b"SELECT count(*), sum(i) FROM unnest(%(a)s::bigint[]) AS i"
    assert cursor.execute(query, {"a": bigints(range(1_000_000))}).fetchall() == [
        (1_000_000, 499_999_500_000)
    ]


def test_an_array_of_another_type_is_refused(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DatatypeMismatch, match="element type"):
        _back(psycopg.Cursor(connection), "bigint", texts(["1"]))


def test_what_no_item_can_be_is_refused_as_the_server_would(cursor: Cursor) -> None:
    for kind, array in (
        ("text", texts(["\ud800"])),
        ("bigint", bigints([2**63])),
        ("boolean", booleans([2])),  # type: ignore[list-item]
    ):
        with pytest.raises(psycopg.DataError):
            _back(cursor, kind, array)


@pytest.mark.parametrize("form", [psycopg.Cursor, psycopg.ClientCursor])
def test_items_are_in_the_encoding_of_the_connection(
    connection: psycopg.Connection[Any], form: type[Cursor]
) -> None:
    url = connection.info.dsn
    with psycopg.connect(url, autocommit=True, client_encoding="LATIN1") as latin:
        teach_arrays(latin)
        cursor = form(latin)
        assert _back(cursor, "text", texts(["zäh", None])) == ["zäh", None]
        query = b"SELECT (%(a)s::jsonb[])[1]::text, octet_length((%(b)s::text[])[1])"
        given = {"a": jsons(['{"ä": "ö"}'.encode()]), "b": texts(["zäh"])}
        assert cursor.execute(query, given).fetchall() == [('{"ä": "ö"}', 4)]  # 4: it keeps UTF-8
        with pytest.raises(psycopg.DataError):
            _back(cursor, "text", texts(["€"]))
