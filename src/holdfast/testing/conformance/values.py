"""Specs for values: any JSON value and bytes come back identical, anything else is refused."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.testing.world import World

FAITHFUL: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.1,
    -0.0,
    1e308,
    5e-324,
    1 / 3,
    1.0,
    1e22,
    "",
    "text",
    "0",
    "null",
    "ü €  \u2028 \U0001f600 \uffff",
    "nul \0 inside",
    '"\\/\b\f\n\r\t\x1f',
    "%s %(x)s :name ? $1 {}",
    b"",
    b"\x00\xff bytes",
    bytes(range(256)),
    [],
    {},
    [[], [[]], {}],
    [1, "a", None, True, 1.5, b"x"],
    {"": 0, "z": 1, "a": {"nested": [b"deep", {"k": b""}]}},
    {"$bytes": "aGk="},
    {"$$bytes": "aGk="},
    {"$bytes": b"both"},
    {"$bytes": 1, "other": 2},
    {"$": 1},
    [{"$bytes": {"$bytes": "x"}}],
    {"key": '$bytes":'},
    "x" * 100_000,
    list(range(1000)),
]


@pytest.mark.parametrize("value", FAITHFUL, ids=lambda value: repr(value)[:30])
async def test_value_comes_back_identical(
    world: World,
    value: Any,  # noqa: ANN401 - any value is the point
) -> None:
    await world.store.cells.set("x", value)
    found = await world.store.cells.get("x")
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, found) == math.copysign(1, value)  # -0.0 stays -0.0


async def test_order_of_keys_is_kept(world: World) -> None:
    await world.store.cells.set("x", {"b": 1, "a": 2, "c": 3})
    assert list(await world.store.cells.get("x")) == ["b", "a", "c"]


async def test_integers_and_floats_stay_apart(world: World) -> None:
    await world.store.cells.set("x", [1, 1.0, True])
    assert [type(item) for item in await world.store.cells.get("x")] == [int, float, bool]


async def test_values_are_copies(world: World) -> None:
    value = {"list": [1]}
    await world.store.cells.set("x", value)
    value["list"].append(2)
    (await world.store.cells.get("x"))["list"].append(3)
    assert await world.store.cells.get("x") == {"list": [1]}


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


REFUSED: list[Any] = [
    float("nan"),
    float("inf"),
    -float("inf"),
    [1, {"deep": float("nan")}],
    2**63,
    -(2**63) - 1,
    2**200,
    {"n": 2**64},
    {1: "int key"},
    {None: 1},
    {("a",): 1},
    {"s": {1, 2}},
    object(),
    1j,
    int,
    "\ud800",
    {"\ud800": 1},
    _cycle(),
]


# Numbered: a repr with an address in it differs between the workers of a parallel run.
@pytest.mark.parametrize("value", REFUSED, ids=range(len(REFUSED)))
async def test_what_would_not_come_back_is_refused(world: World, value: object) -> None:
    cells = world.store.cells
    for call in (cells.set("x", value), cells.init("x", value), cells.cas("x", None, value)):
        with pytest.raises(holdfast.InvalidArgument, match=r"value|deep|key|n:|s:"):
            await call
    assert await cells.list() == []


class Level(enum.IntEnum):
    """A number with a subclass."""

    HIGH = 3


class Kind(str, enum.Enum):  # noqa: UP042 - the older form, whose str() is not its value
    """A text with a subclass."""

    A = "a"


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    tag: bytes


class Box(msgspec.Struct):
    """A Struct."""

    points: list[Point]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (Level.HIGH, 3),
        ({"k": Kind.A}, {"k": "a"}),
        (bytearray(b"ab"), b"ab"),
        (Point(1, b"t"), {"x": 1, "tag": b"t"}),
        (Box([Point(2, b"")]), {"points": [{"x": 2, "tag": b""}]}),
    ],
    ids=repr,
)
async def test_models_are_stored_as_their_json_form(
    world: World, value: object, found: object
) -> None:
    await world.store.cells.set("x", value)
    assert await world.store.cells.get("x") == found
