"""What the contenders of records share: the number that each record was last given.

Every operation writes its number into the field `step`. A record belongs to one caller, so in
the end each must be what its last write made of it.
"""

from collections.abc import Mapping
from typing import Final

from bench.scenario import Work, record


class Written:
    """The last number of each record, 0 as long as it is as it was born."""

    def __init__(self, work: Work) -> None:
        self._whole: Final = work.operation == "put"
        self.last: Final = {} if work.rows else dict.fromkeys(work.all_cells(), 0)

    def check(self, name: str, fields: Mapping[str, object] | None) -> None:
        """Raise unless the record is what it must be."""
        number = self.last[name]
        wanted = record(number) if self._whole else {**record(0), "step": number}
        found = {field: _text(value) for field, value in (fields or {}).items()}
        if found != {field: str(value) for field, value in wanted.items()}:
            raise AssertionError(f"{name}: write {number} did not arrive, found {found}")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
