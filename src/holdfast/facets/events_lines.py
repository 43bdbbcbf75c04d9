"""Runs as lines of JSON, which export writes and import reads.

    {"holdfast":"events","contract_version":"1.0"}
    {"run_id":"r","run_seq":1,"event_id":"…","step_id":null, … all fields of the contract}
    {"holdfast":"end","events":1}

The last line tells a whole file from a truncated one. Whole files one after the other are a file
too. `event_data` and `engine_run_ref` are spelled as codec.py does.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

import msgspec

from holdfast import codec
from holdfast.errors import Corrupt, InvalidArgument, Serialization, Unsupported
from holdfast.facets.events import (
    CONTRACT_VERSION,
    Event,
    NewEvent,
    StoredEvent,
    check_seq,
    new_event,
    read_event,
)
from holdfast.facets.names import check_name

_MAJOR = CONTRACT_VERSION.split(".", 1)[0]


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote."""

    runs: int = 0
    events: int = 0


class Imported(msgspec.Struct, frozen=True):
    """What an import read: events that were new, and those that the store had already."""

    events: int = 0
    known: int = 0

    def __add__(self, other: Imported) -> Imported:
        return Imported(self.events + other.events, self.known + other.known)


class _Mark(msgspec.Struct, omit_defaults=True):
    """The first line, or the last one."""

    holdfast: str
    contract_version: str | None = None
    events: int | None = None


class _Line(msgspec.Struct):
    """An event as a line spells it; what may be missing comes last."""

    run_id: str
    run_seq: int
    event_id: str
    event_type: str
    idempotency_key: str
    emitted_at: datetime
    step_id: str | None = None
    engine_attempt_id: str | None = None
    logical_attempt_id: str | None = None
    event_data: msgspec.Raw = msgspec.Raw(b"null")
    persisted_at: datetime | None = None
    adapter_version: str | None = None
    engine_run_ref: msgspec.Raw = msgspec.Raw(b"null")
    caused_by_signal_id: str | None = None
    parent_event_id: str | None = None


class ReadLine(NamedTuple):
    """An event of a file; `number` is of its line, from 1 on."""

    number: int
    run_id: str
    run_seq: int
    event: NewEvent

    def is_stored_as(self, stored: StoredEvent) -> bool:
        """True when the store has that very event, whenever it was persisted."""
        key, event_id, event_type, emitted_at, data, more = self.event
        at = stored.emitted_at if emitted_at is None else emitted_at
        kept = stored.persisted_at
        mine = StoredEvent(
            self.run_id, self.run_seq, key, event_id, event_type, at, kept, data, more
        )
        return mine == stored or read_event(mine) == read_event(stored)


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_mark = msgspec.json.Decoder(_Mark).decode
_MARK = b'{"holdfast"'


def first_line() -> bytes:
    """What a file begins with."""
    return _encode(_Mark("events", contract_version=CONTRACT_VERSION)) + b"\n"


def last_line(events: int) -> bytes:
    """What a file of so many events ends with."""
    return _encode(_Mark("end", events=events)) + b"\n"


def event_line(stored: StoredEvent) -> bytes:
    """The line of an event."""
    event = read_event(stored)
    ref = event.engine_run_ref
    line = _Line(
        stored.run_id,
        stored.run_seq,
        str(UUID(bytes=stored.event_id)),
        stored.event_type,
        stored.key,
        cast("datetime", event.emitted_at),
        event.step_id,
        cast("str | None", event.engine_attempt_id),
        cast("str | None", event.logical_attempt_id),
        msgspec.Raw(stored.data.encode()),
        event.persisted_at,
        event.adapter_version,
        msgspec.Raw(b"null" if ref is None else codec.encode(ref)),
        event.caused_by_signal_id,
        event.parent_event_id,
    )
    return _encode(line) + b"\n"


class LineReader:
    """Reads the lines of a file in their order; `end` says whether there may be no more."""

    def __init__(self) -> None:
        self.number = 0
        """Of the line that was read last."""
        self._inside = False
        self._events = 0

    def read(self, line: bytes) -> ReadLine | None:
        """The event of the next line; None for a line without one.

        Every error names the line, also as `line`.
        """
        self.number += 1
        if not line.strip():
            return None
        try:
            if line.lstrip().startswith(_MARK):
                self._mark(_decode_mark(line))
                return None
            if not self._inside:
                raise self._damage("wanted the first line of an export")
            self._events += 1
            return _event(self.number, _decode_line(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise self._damage(f"not an event: {exc}") from exc
        except Serialization as exc:
            raise self._damage(str(exc)) from exc
        except InvalidArgument as exc:
            raise at_line(self.number, exc) from exc

    def end(self) -> None:
        """Raise Corrupt unless the file is whole."""
        if self._inside or not self.number:
            raise Corrupt(
                f"line {self.number + 1}: the file ends here, without its last line: truncated",
                line=self.number + 1,
            )

    def _mark(self, mark: _Mark) -> None:
        if mark.holdfast == "events" and not self._inside:
            version = mark.contract_version or ""
            major, _, minor = version.partition(".")
            if not (major.isdecimal() and minor.isdecimal()):
                raise self._damage(f"no contract version: {version!r:.40}")
            if major != _MAJOR:
                raise Unsupported(
                    f"line {self.number}: of contract version {version}, "
                    f"and this Holdfast knows {_MAJOR}.x",
                    line=self.number,
                    contract_version=version,
                )
            self._inside, self._events = True, 0
        elif mark.holdfast == "end" and self._inside:
            if mark.events != self._events:
                raise self._damage(f"{mark.events} events were written, found {self._events}")
            self._inside = False
        else:
            raise self._damage(f"a line of kind {mark.holdfast!r:.40} is out of place")

    def _damage(self, why: str) -> Corrupt:
        return Corrupt(f"line {self.number}: {why}", line=self.number)


def at_line(number: int, exc: InvalidArgument) -> InvalidArgument:
    """The same error, which names the line."""
    named = InvalidArgument(f"line {number}: {exc}", line=number)
    named.facts.update(exc.facts)
    return named


def _event(number: int, line: _Line) -> ReadLine:
    check_name(line.run_id, what="run id")
    if check_seq(line.run_seq, "run_seq") == 0:
        raise InvalidArgument("run_seq: wanted a number from 1 on, found 0")
    event = Event(
        line.run_id,
        line.event_type,
        line.idempotency_key,
        codec.decode(bytes(line.event_data)),
        line.step_id,
        line.logical_attempt_id,
        line.engine_attempt_id,
        line.event_id,
        line.emitted_at,
        line.adapter_version,
        codec.decode(bytes(line.engine_run_ref)),
        line.caused_by_signal_id,
        line.parent_event_id,
    )
    return ReadLine(number, line.run_id, line.run_seq, new_event(event))
