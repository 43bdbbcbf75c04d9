"""What is remembered of the fields of records is little, whatever their names are."""

from __future__ import annotations

import tracemalloc

from holdfast.facets.records import MOST_REMEMBERED, to_settings


def test_names_of_wide_records_are_not_remembered() -> None:
    tracemalloc.start()
    for record in range(20):
        to_settings("k", {f"{record}.{field}": 1 for field in range(10_000)})
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000


def test_sizes_are_the_same_however_many_fields_there_are() -> None:
    for count in (1, MOST_REMEMBERED, MOST_REMEMBERED + 1):
        fields = {f"field {number:04}": "value" for number in range(count)}
        settings, size, known = to_settings("k", fields)
        assert settings == dict.fromkeys(fields, b"value")
        assert size == count * len("field 0000" + "value")
        assert known
