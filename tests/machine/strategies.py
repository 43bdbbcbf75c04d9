"""Names and values for the machine: few enough to collide, and the nasty ones among them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

# Prefixes of one another, wildcards of LIKE and GLOB, neighbours in byte order, quotes.
_NAMES = ["a", "a%", "a_", "ab", "A", "a*", "ä", "a\u0308", "\ud7ff", "\ue000", "\U0010ffff", "'\n"]
_LETTERS = "ab%_*'\"\\:$ \nä\u0308\ud7ff\ue000\uffff\U0001f600\U0010ffff"
_ILLEGAL_NAMES = ["", "\0", "a\0", "x" * 1025, "ü" * 513, "\ud800", "_holdfast/x", "_strata/"]

_VALUES = [
    None,
    0,
    1,
    *(True, True, True),
    1.0,
    -0.0,
    "",
    "null",
    "a\0b",
    "%s :name ? $1 {}",
    b"",
    b"\x00\xff",
    [],
    {},
    {"$bytes": "aGk="},
    {"$$bytes": b"hi"},
    [{"$bytes": {"$bytes": "x"}}],
    {"key": '$bytes":'},
    {"b": 1, "a": [1, 1.0, True, None]},
    -(2**63),
    2**63 - 1,
]
_ILLEGAL_VALUES = [float("nan"), [float("inf")], {"n": 2**63}, {1: 2}, "\ud800", {"\ud800": 1}, 1j]

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
_keys = st.sampled_from(["$bytes", "$$bytes", "", "k"]) | st.text(max_size=4)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=5,
)

# One choice each: what a step draws costs more than what the engine does.
names = st.sampled_from([*["a"] * 8, *_NAMES[:3] * 3, *_NAMES])
any_names = st.text(_LETTERS, min_size=1, max_size=8)
prefixes = st.sampled_from(["", "", *_NAMES])
starts = st.sampled_from([None, None, *_NAMES])
values: st.SearchStrategy[Any] = st.sampled_from(_VALUES)
any_values: st.SearchStrategy[Any] = _json
op_ids = st.sampled_from([None] * 5 + [UUID(int=number) for number in range(1, 5)])
limits = st.sampled_from([None, None, 0, 1, 2, 4])
# How far from the live version a cas is; None: it expects an absent cell.
guesses = st.sampled_from([None, 0, 0, 0, -1, 1])
# Written out, to be one choice as well.
_few = ["a", "a", "a", "a%", "ab"]
_session_reads: list[tuple[str, tuple[Any, ...]]] = [
    *(("get", (name, "default")) for name in [*_NAMES, *_few]),
    *(("get_versioned", (name,)) for name in [*_NAMES, *_few]),
    *(("getv", (name, limit)) for name in _few for limit in (None, 0, 1, 2)),
    *(("list", ("", after, None)) for after in (None, None, *_NAMES)),
    *(("list", (prefix, None, limit)) for prefix in _NAMES for limit in (None, 0, 1, 2)),
]
_session_writes: list[tuple[str, tuple[Any, ...]]] = [
    *(("set", (name, value)) for name in _few for value in _VALUES),
    *(("delete", (name,)) for name in _few * 2),
    *(("init", (name, "init")) for name in _few * 2),
    *(("cas", (name, guess, "cas")) for name in _few for guess in (None, 0, 0, 1)),
    *(("set_many", ({"a": n, name: n},)) for name in _NAMES for n in range(2)),
    ("set_many", ({},)),
]
session_reads = st.sampled_from(_session_reads)
session_calls = st.sampled_from(_session_writes + _session_reads)
illegal_calls: st.SearchStrategy[tuple[str, tuple[Any, ...]]] = st.sampled_from(
    [
        *((call, (name, 1)) for call in ("set", "init", "getv") for name in _ILLEGAL_NAMES),
        *((call, (name,)) for call in ("get", "delete") for name in _ILLEGAL_NAMES),
        *(("set", ("a", value)) for value in _ILLEGAL_VALUES),
        *(("set_many", ({"a": 1, "ab": value},)) for value in _ILLEGAL_VALUES),
        *(("cas", ("a", expected, "v")) for expected in (0, -1)),
        ("getv", ("a", -1)),
        ("list", ("a\0",)),
    ]
)


def touched(call: tuple[str, tuple[Any, ...]]) -> str:
    """A name that a session's reading call is about."""
    name: str = call[1][0]
    return name or "ab"
