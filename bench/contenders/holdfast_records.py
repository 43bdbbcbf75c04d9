"""Holdfast's records, blocking."""

from typing import Final

import holdfast
from bench.callers import Step
from bench.contenders.holdfast_cells import store_url
from bench.rows import DUE, FILTERS, PREFIX
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written


class Program:
    """Records through `holdfast.open`."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)
        self._written: Final = Written(work)

    def open(self) -> None:
        """Make the records."""
        self._store = holdfast.open(self._url)
        for name in self._written.last:
            self._store.records.put(name, record(0))

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names = self._work.cells(number)
        records = self._store.records
        last = self._written.last

        def put(n: int) -> object:
            name = names[n % len(names)]
            records.put(name, record(n))
            last[name] = n
            return None

        def set_field(n: int) -> object:
            name = names[n % len(names)]
            records.set_field(name, "step", n)
            last[name] = n
            return None

        def compare_and_swap(n: int) -> object:
            name = names[n % len(names)]
            if not records.compare_and_swap(name, "step", last[name], n):
                raise AssertionError(f"{name}: refused, though nobody else wrote")
            last[name] = n
            return None

        def get(n: int) -> object:
            return records.get(names[n % len(names)])

        def scan(_: int) -> object:
            found = [key for key, _ in records.scan(PREFIX, filters=FILTERS)]
            assert len(found) == DUE, f"{len(found)} of {DUE} were found"
            return found

        return {
            "put": put,
            "set_field": set_field,
            "compare_and_swap": compare_and_swap,
            "get": get,
            "scan": scan,
        }[self._work.operation]

    def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            found = self._store.records.get(name)
            self._written.check(name, None if found is None else found.fields)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
