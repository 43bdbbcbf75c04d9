"""Events on Redis: a run is a few hashes, and the feed a stream that refers to them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys, lex_range
from holdfast.backends.redis.namespaces import RedisNamespaces
from holdfast.backends.redis.protocol import Command, Reply
from holdfast.backends.redis.script import Script
from holdfast.facets.events import (
    LOG,
    Append,
    Appended,
    Keep,
    Refused,
    RunKey,
    RunState,
    StoredEvent,
    StoredSnapshot,
    damaged,
    lost_events,
)
from holdfast.facets.feed import Page, Position

# How much one command may ask for: the server does nothing else meanwhile.
_EVENTS_PAGE = 200
_REFUSED = 2  # values of an answer
_NOT_THERE = 2  # answer of delete_run
_BY_EXPECTATION = b"expected"
_unpack = msgspec.msgpack.Decoder(tuple[str, str, str, str, str, str, str, str]).decode

Outcome = Sequence[Appended] | Refused


class RedisEvents:
    """See EventsBackend."""

    def __init__(self, db: RedisDb, keys: Keys, namespaces: RedisNamespaces) -> None:
        self._db = db
        self._keys = keys
        self._namespaces = namespaces
        self._append = AppendEvents(keys)
        self._read = Script("read_events")
        self._delete = Script("delete_run")
        self._keep = Script("keep_view")

    async def append(self, appends: Sequence[Append], size: int) -> Sequence[Outcome]:
        """See EventsBackend."""
        namespace, _ = appends[0].run
        await self._namespaces.note(namespace)
        base = self._keys.base(namespace)
        return await self._db.do(self._append, appends, base, size=size, topic=(LOG, namespace))

    async def fetch(
        self, run: RunKey, *, after: int, limit: int, generation: int | None = None
    ) -> list[StoredEvent]:
        """See EventsBackend."""
        namespace, run_id = run
        base = self._keys.base(namespace)
        found: list[StoredEvent] = []
        while len(found) < limit:
            count = min(limit - len(found), _EVENTS_PAGE)
            arguments = [run_id.encode(), b"%d" % after, b"%d" % count, b"%d" % (generation or 0)]
            (values,) = await self._db.ask([self._read.call([base], arguments)], base)
            found += [
                _event(run_id, int(seq), packed)
                for seq, packed in zip(values[::2], values[1::2], strict=True)
            ]
            if len(values) < 2 * count:
                break
            after = found[-1].run_seq
        return found

    async def runs(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        """See EventsBackend."""
        base = self._keys.base(namespace)
        span = (*lex_range("", after), b"LIMIT", b"0", b"%d" % limit)
        (names,) = await self._db.ask([(b"ZRANGEBYLEX", base + b":runs", *span)], base)
        return [name.decode() for name in names]

    async def delete(
        self, run: RunKey, limit: int, *, generation: int, last_seq: int | None = None
    ) -> bool | None:
        """See EventsBackend."""
        namespace, run_id = run
        base = self._keys.base(namespace)
        arguments = [run_id.encode(), b"%d" % min(limit, _EVENTS_PAGE), b"%d" % generation]
        arguments.append(b"" if last_seq is None else b"%d" % last_seq)
        (done,) = await self._db.ask([self._delete.call([base], arguments)], base)
        return None if done == _NOT_THERE else bool(done)

    async def state(self, run: RunKey, view: str) -> RunState | None:
        """See EventsBackend."""
        namespace, run_id = run
        base = self._keys.base(namespace)
        fields = (b"g", b"n", b"s" + view.encode(), b"p" + view.encode())
        command = (b"HMGET", base + b":h:" + run_id.encode(), *fields)
        ((generation, last_seq, kept_seq, payload),) = await self._db.ask([command], base)
        if last_seq is None:
            return None
        kept = None if payload is None else StoredSnapshot(int(kept_seq), payload.decode())
        return RunState(int(generation), int(last_seq), kept)

    async def keep(self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot) -> bool:
        """See EventsBackend."""
        (kept,) = await self.keep_all([Keep(run, view, generation, snapshot)])
        return kept

    async def keep_all(self, keeps: Sequence[Keep]) -> Sequence[bool]:
        """See EventsBackend."""
        base = self._keys.base(keeps[0].run[0])
        commands = [self._keeping(base, each) for each in keeps]
        return [bool(kept) for kept in await self._db.ask(commands, base)]

    def _keeping(self, base: bytes, keep: Keep) -> Command:
        (_, run_id), view, generation, (last_seq, payload) = keep
        arguments = [run_id.encode(), view.encode(), b"%d" % generation]
        arguments += [b"%d" % last_seq, payload.encode()]
        return self._keep.call([base], arguments)


class RedisEventLog:
    """The feed of one namespace, by the event's number in it. See EventLog.

    A script is atomic and draws its number itself, so numbers come in the order of commits.
    """

    def __init__(self, db: RedisDb, keys: Keys, namespace: str) -> None:
        self._db = db
        self._base = keys.base(namespace)
        self._changes = Script("read_feed")

    async def start(self) -> Position:
        """See EventLog."""
        return Position(0, 0, 0)

    async def position(self) -> Position:
        """See EventLog."""
        (number,) = await self._db.ask([(b"GET", self._base + b":fed")], self._base)
        return Position(0, 0, int(number or 0))

    async def end(self) -> Position:
        """See EventLog."""
        return await self.position()

    async def changes(
        self, namespace: str, *, after: Position, limit: int
    ) -> Page[tuple[Position, StoredEvent]]:
        """See EventLog."""
        del namespace  # it is the log's own
        command = self._changes.call([self._base], [b"%d" % after.seq, b"%d" % limit])
        (reply,) = await self._db.ask([command], self._base)
        if reply is None:
            raise lost_events(after)
        upto, more, *values = reply
        changes = []
        for at in range(0, len(values), 4):
            number, run_id, seq, packed = values[at : at + 4]
            event = _event(run_id.decode(), int(seq), packed)
            changes.append((Position(0, 0, int(number)), event))
        return Page(changes, Position(0, 0, int(upto)), more=bool(more), held_back=False)


class AppendEvents:
    """Calls, each one script. See Operation."""

    writes = True
    timed = False
    joins = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._script = Script("append_events")

    def command(self, item: Append, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # keys tell
        (namespace, run_id), events, expected = item
        base = self._keys.base(namespace)
        arguments = [run_id.encode(), b"" if expected is None else b"%d" % expected]
        for key, event_id, event_type, emitted_at, data, more in events:
            arguments += (key.encode(), event_id.hex().encode(), event_type.encode())
            arguments += (b"" if emitted_at is None else b"%d" % emitted_at, data.encode())
            arguments += (b"0", b"") if more is None else (b"1", more.encode())
        return self._script.call([base, self._keys.clock(base)], arguments)

    def answer(self, reply: Reply, item: Append) -> Outcome:
        """See Operation."""
        if len(reply) == _REFUSED:
            last_seq, why = reply
            return Refused(
                last_seq, None if why == _BY_EXPECTATION else bytes.fromhex(why.decode())
            )
        del item
        _, *values = reply
        return [
            Appended(
                run_seq, (kind.decode(), data.decode(), more.decode() or None) if kind else None
            )
            for run_seq, kind, data, more in zip(*(values[at::4] for at in range(4)), strict=True)
        ]


def _event(run_id: str, run_seq: int, packed: bytes | None) -> StoredEvent:
    if packed is None:
        return damaged(run_id, run_seq, "is gone; was it evicted, or its key deleted?")
    try:
        key, event_id, event_type, emitted_at, persisted_at, data, more, _ = _unpack(packed)
        return StoredEvent(
            run_id,
            run_seq,
            key,
            bytes.fromhex(event_id),
            event_type,
            int(emitted_at),
            int(persisted_at),
            data,
            more or None,
        )
    except (msgspec.DecodeError, ValueError) as exc:
        return damaged(run_id, run_seq, f"cannot be read: {exc}")
