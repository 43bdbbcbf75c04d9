"""Names are 1 to 1024 UTF-8 bytes without NUL, and a prefix is a range of them."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
import uuid_utils
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import InvalidArgument
from holdfast.facets.cells import check_cell_name
from holdfast.facets.names import check_name, check_prefix, operation_id, prefix_end

quick = settings(deadline=None, database=None, print_blob=True)
# Few letters, so that one text is often the prefix of another; the edges of UTF-8 among them.
letters = "ab\x01\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"
texts = st.text(letters, max_size=5) | st.text(max_size=5)


@settings(quick, max_examples=500)
@given(texts, texts, texts)
@example("", "\U0010ffff" * 256, "")
@example("\U0010ffff", "\U0010ffff" * 256, "")
@example("\ud7ff", "\ue000", "")
def test_prefix_range_holds_exactly_the_names_that_start_with_it(
    prefix: str, other: str, rest: str
) -> None:
    first, end = prefix.encode(), prefix_end(prefix).encode()
    for name in (other, prefix + rest, prefix):
        assert (first <= name.encode() < end) == name.startswith(prefix)


def test_prefix_range_reaches_the_longest_names() -> None:
    longest = "\U0010ffff" * 256
    assert len(longest.encode()) == 1024
    for prefix in ("", "\U0010ffff", longest):
        assert longest.encode() < prefix_end(prefix).encode()


LEGAL = ["a", "x" * 1024, "ü" * 512, "\U0010ffff" * 256, " ", "\n", "%_", "'", "_holdfast"]
TOO_LONG = ["x" * 1025, "ü" * 513, "\U0010ffff" * 256 + "x"]


@pytest.mark.parametrize("name", LEGAL, ids=lambda name: repr(name)[:10])
def test_legal_name_comes_back_itself(name: str) -> None:
    assert check_name(name, what="tag") is name
    assert check_prefix(name) is name
    assert check_cell_name(name) is name


def test_prefix_may_be_empty() -> None:
    assert check_prefix("") == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "tag: must not be empty"),
        ("a\0b", "tag 'a\\\\x00b': holds a NUL"),
        ("ä\0", "tag .*: holds a NUL"),
        ("\ud800", "tag: holds a lone surrogate"),
        (7, "tag: wanted text, found int"),
        (None, "tag: wanted text, found NoneType"),
        (b"x", "tag: wanted text, found bytes"),
        *((name, "tag .*: 102[5-8] bytes, at most 1024") for name in TOO_LONG),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_illegal_name_is_refused_by_what_it_is(name: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_name(name, what="tag")


@pytest.mark.parametrize("prefix", ["\0", "\ud800", 7, None, *TOO_LONG], ids=lambda p: repr(p)[:9])
def test_illegal_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        check_prefix(prefix)


@pytest.mark.parametrize("name", ["_strata/", "_strata/x", "_holdfast/x"])
def test_reserved_cell_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="_strata/ and _holdfast/ are reserved"):
        check_cell_name(name)


def test_operation_id_is_sixteen_bytes_of_a_uuid() -> None:
    given_id = uuid4()
    for form in (given_id, str(given_id), given_id.hex, uuid_utils.UUID(given_id.hex)):
        assert operation_id(form) == given_id.bytes  # type: ignore[arg-type] # uuid_utils' own class


def test_missing_operation_id_becomes_a_new_uuid7() -> None:
    made = [UUID(bytes=operation_id(None)) for _ in range(100)]
    assert len(set(made)) == 100
    assert {uuid.version for uuid in made} == {7}
    assert made == sorted(made)


@pytest.mark.parametrize("op_id", ["", "x", 7, b"0123456789abcdef", 1.5, ()], ids=repr)
def test_what_is_no_uuid_is_refused(op_id: str) -> None:
    with pytest.raises(InvalidArgument, match="op_id: wanted a UUID, found"):
        operation_id(op_id)
