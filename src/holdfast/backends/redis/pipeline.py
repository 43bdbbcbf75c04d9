"""Units of work as one pipeline: sent together, answered one by one."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from holdfast.backends.batching import NotBegun
from holdfast.backends.pool import Lease
from holdfast.backends.redis.connection import RedisConnection
from holdfast.backends.redis.errors import translate
from holdfast.backends.redis.hints import Hints
from holdfast.backends.redis.protocol import Command, Refusal, Reply
from holdfast.backends.redis.script import text_of
from holdfast.backends.redis.servers import Address, Servers, is_redirection
from holdfast.clock import MICROSECONDS
from holdfast.errors import StoreError, Unavailable
from holdfast.runtime import Topic, Unit

Item_contra = TypeVar("Item_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

_MOST_JOINED = 100  # in one script, in which nobody else is served
_MOST_HOPS = 5  # from node to node, while slots move


class Operation(Protocol[Item_contra, Answer_co]):
    """One hot operation: each item is one command."""

    @property
    def joins(self) -> bool:
        """True if it is a Joining operation."""

    @property
    def writes(self) -> bool:
        """True if it may change something."""

    @property
    def timed(self) -> bool:
        """True if its answers depend on the clock: they come as Timed."""

    def command(self, item: Item_contra, *, repeat: bool) -> Command:
        """The command; in a repeat an earlier one may have been applied."""

    def answer(self, reply: Reply, item: Item_contra) -> Answer_co:
        """What the server's answer means."""


class Joining(Operation[Item_contra, Answer_co], Protocol):
    """One whose commands are sent as one if they begin alike: its answer is a list."""

    def begin(self, item: Item_contra) -> list[bytes]:
        """All words of the command but the last."""

    def word(self, item: Item_contra, *, repeat: bool) -> bytes:
        """The last word of the command."""


class Timed(NamedTuple):
    """An answer from some moment between these two of the store's clock."""

    early_us: int
    late_us: int
    reply: Reply


class Frame(NamedTuple):
    """What goes out around the commands of a pipeline."""

    clock: Sequence[Command]
    """Before and after commands that are timed: cheaper than a script for each of them."""

    hints: Hints
    """After a change, to those who watch in other processes."""


class Pipeline:
    """One attempt after the other to have units done by one server. See Attempt."""

    def __init__(
        self,
        servers: Servers,
        address: Address,
        frame: Frame,
        *,
        wait_replicas: int,
        hops: int = _MOST_HOPS,
    ) -> None:
        self._servers = servers
        self._pool = servers.pool(address)
        self._frame = frame
        self._wait = wait_replicas
        self._hops = hops if servers.cluster else 0

    async def __call__(self, units: list[Unit], *, repeat: bool, patient: bool) -> None:
        """See Attempt. Writes that were answered before a connection broke are settled."""
        del patient  # nothing here waits for locks
        left = [unit for unit in units if not unit.settled] if repeat else units
        if not left:
            return  # only what comes after the commands was lost
        sent = _Sent(left, self._frame, repeat=repeat)
        settle = sent.settle if sent.single and not self._wait else None
        lease = self._pool.at_hand() or await self._take(sent)
        missing = None
        try:
            refused = await lease.connection.exchange(sent.all, sent.replies, settle=settle)
            if not sent.settled:
                missing = await self._finish(sent, lease.connection, refused=refused)
        except BaseException as exc:
            await lease.end(exc)
            if isinstance(exc, StoreError):
                await self._note_loss(sent, exc)
            raise
        if not lease.give_back():
            await lease.end(None)
        if not sent.settled:
            self._settle(sent, missing)
            moved = [unit for unit in left if not unit.settled]
            if moved:
                await self._follow(moved, repeat=repeat)

    async def _finish(
        self, sent: _Sent, connection: RedisConnection, *, refused: bool
    ) -> str | None:
        """Have all answers, also of unknown scripts; what to say if too few replicas have it."""
        if refused and await call_unknown(connection, sent.all, sent.replies):
            await connection.exchange(sent.after, [])  # that was too soon
        if self._wait:
            return await self._missing_replicas(connection, sent.key)
        if sent.single and not refused:
            sent.settle()
        return None

    async def _note_loss(self, sent: _Sent, error: StoreError) -> None:
        """Settle what was answered before the connection broke, and turn to another node."""
        if not any(unit.batch.writes for unit in sent.units):
            error.outcome_unknown = False
        elif not self._wait:
            self._settle(sent, lost=True)
        await self._turn(sent)

    async def _follow(self, moved: list[Unit], *, repeat: bool) -> None:
        """Have the units done whose answers only say that their keys are on another node."""
        await self._servers.look_again()
        groups: dict[Address, list[Unit]] = {}
        for unit in moved:
            address = self._servers.address(_key(unit.batch.command(unit.items[0], repeat=False)))
            groups.setdefault(address, []).append(unit)
        for address, group in groups.items():
            there = Pipeline(
                self._servers,
                address,
                self._frame,
                wait_replicas=self._wait,
                hops=self._hops - 1,
            )
            # What may have been done of a unit is known by its operation ids.
            await there(group, repeat=repeat, patient=True)

    async def _take(self, sent: _Sent) -> Lease[RedisConnection]:
        try:
            return await self._pool.take()
        except StoreError as exc:
            if not await self._turn(sent):  # there is nowhere else to try
                raise NotBegun(exc) from exc
        try:
            return await self._pool.take()
        except StoreError as exc:
            raise NotBegun(exc) from exc

    async def _turn(self, sent: _Sent) -> bool:
        """Turn to whichever node has the keys now; True if that is another one."""
        if not self._servers.cluster:
            return False
        await self._servers.look_again()
        before, self._pool = self._pool, self._servers.pool(self._servers.address(sent.key))
        return self._pool is not before

    async def _missing_replicas(self, connection: RedisConnection, base: bytes) -> str | None:
        """What to say if too few replicas have it; None if enough have."""
        replies: list[Reply] = []
        seconds = self._servers.settings.call_timeout
        # WAIT is about the connection's own writes, and an operation that was known made none.
        # What comes after it has come after everything before.
        touch = (b"SET", base + b":wait", b"", b"PX", b"1000")
        wait = (b"WAIT", b"%d" % self._wait, b"%d" % max(1, seconds * 1000))
        await connection.exchange([touch, wait], replies, more_secs=seconds)
        if isinstance(replies[-1], int) and replies[-1] >= self._wait:
            return None
        return f"written, but only {replies[-1]} of {self._wait} replicas have it so far"

    def _settle(self, sent: _Sent, missing: str | None = None, *, lost: bool = False) -> None:
        """Give an outcome to the units that were answered, but not to those that have moved.

        When the connection was lost, "no such script" is no answer: it may have been called since.
        """
        for unit, replies in sent.answered():
            if unit.settled or (self._hops and any(map(is_redirection, replies))):
                continue
            if lost and any(map(_is_unknown, replies)):
                continue
            if missing is not None:
                unit.fail(Unavailable(f"{self._pool.where}: {missing}", outcome_unknown=True))
                continue
            try:
                unit.answers = [
                    self._answer(unit, item, reply)
                    for item, reply in zip(unit.items, replies, strict=True)
                ]
            except StoreError as exc:
                unit.fail(exc)
            unit.settled = True

    def _answer(self, unit: Unit, item: object, reply: Reply) -> object:
        if isinstance(reply, Refusal):
            raise translate(reply, self._pool.where) from reply
        return unit.batch.answer(reply, item)


class _Sent:
    """The commands of a pipeline, and their answers as they come."""

    def __init__(self, units: list[Unit], frame: Frame, *, repeat: bool) -> None:
        self.units = units
        self.single = True
        """No unit has several items, and none of their answers depends on the clock."""
        self._widths: list[int | None] = []
        """For how many items each command is; None for one, answered by no list."""
        self._before: Sequence[Command] = ()
        alone = units[0]
        own: list[Command]
        topics: Collection[Topic]
        if len(units) == 1 and len(alone.items) == 1 and alone.batch.joins:
            (item,) = alone.items  # a lone caller is spared the grouping
            own = [[*alone.batch.begin(item), alone.batch.word(item, repeat=repeat)]]
            self._widths.append(1)
            topics = () if alone.topic is None else (alone.topic,)
        else:
            own = self._join(repeat=repeat)
            topics = {unit.topic for unit in units if unit.topic is not None}
            if any(unit.batch.timed for unit in units):
                self.single = False
                self._before = frame.clock
        self._hints = frame.hints
        self._sent_at = time.monotonic()
        hints = frame.hints.about(topics, self._sent_at) if topics else ()
        self._hinted = bool(hints)
        self.after = [*self._before, *hints]
        self.all: list[Command] = [*self._before, *own, *self.after]
        self.replies: list[Reply] = []
        self.settled = False

    def _join(self, *, repeat: bool) -> list[Command]:
        """The commands of all items, those that begin alike as one."""
        own: list[Command] = []
        begin: list[bytes] | None = None  # of a command that others may join
        joined: list[bytes] = []
        width = 0
        for unit in self.units:
            batch, items = unit.batch, unit.items
            if len(items) != 1:
                self.single = False
            for item in items:
                if not batch.joins:
                    own.append(batch.command(item, repeat=repeat))
                    self._widths.append(None)
                    begin = None
                    continue
                head = batch.begin(item)
                if head != begin or width == _MOST_JOINED:
                    begin, joined, width = head, [*head], 0
                    own.append(joined)
                    self._widths.append(0)
                joined.append(batch.word(item, repeat=repeat))
                width += 1
                self._widths[-1] = width
        return own

    @property
    def key(self) -> bytes:
        """A key of the first command: all are on one server."""
        return _key(self.all[len(self._before)])

    def settle(self) -> list[Unit]:
        """Give an outcome to all units, if each is single and none was refused."""
        self.settled = True
        if self._hinted:
            self._hints.reached(self.replies[-1], self._sent_at)
        for unit, reply in zip(self.units, self._answers(), strict=True):
            try:
                unit.answers = (unit.batch.answer(reply, unit.items[0]),)
            except StoreError as exc:
                unit.fail(exc)
            unit.settled = True
        return self.units

    def answered(self) -> Iterator[tuple[Unit, Sequence[Reply]]]:
        """The units whose answers are all there, with them."""
        width = len(self._before)
        early = late = 0
        if width and len(self.replies) == len(self.all):
            end = len(self.replies) - len(self.after)
            early, late = _clock(self.replies[:width]), _clock(self.replies[end : end + width])
        answers = self._answers()
        begin = 0
        for unit in self.units:
            end = begin + len(unit.items)
            found = answers[begin:end]
            if end <= len(answers):
                if unit.batch.timed:
                    found = [
                        one if isinstance(one, Refusal) else Timed(early, late, one)
                        for one in found
                    ]
                yield unit, found
            begin = end

    def _answers(self) -> list[Reply]:
        """The answers to items that are there: a refused command is one for each of its items."""
        own = self.replies[len(self._before) :] if self._before else self.replies
        if len(self._widths) == 1 and self._widths[0] and own and type(own[0]) is list:
            return own[0]  # as nearly always
        answers: list[Reply] = []
        for reply, width in zip(own, self._widths, strict=False):
            if width is None:
                answers.append(reply)
            else:
                answers += [reply] * width if isinstance(reply, Refusal) else reply
        return answers


def _key(command: Command) -> bytes:
    """Of a script its first key, of other commands the word after their name."""
    return command[3] if command[0] == b"EVALSHA" else command[1]


def _clock(replies: list[Reply]) -> int:
    """The store's clock: the server's, and the offset where there is one."""
    for reply in replies:
        if isinstance(reply, Refusal):
            raise translate(reply, "the clock")
    (whole, micros), *offset = replies
    return int(whole) * MICROSECONDS + int(micros) + sum(int(one or 0) for one in offset)


async def call_unknown(
    connection: RedisConnection, commands: Sequence[Command], replies: list[Reply]
) -> bool:
    """Load the scripts that the server did not know, and call them again; False if it knew all."""
    unknown = [at for at, reply in enumerate(replies) if _is_unknown(reply)]
    if unknown:
        loading = [
            (b"SCRIPT", b"LOAD", text_of(sha)) for sha in {commands[at][1] for at in unknown}
        ]
        again: list[Reply] = []
        await connection.exchange([*loading, *(commands[at] for at in unknown)], again)
        for at, reply in zip(unknown, again[len(loading) :], strict=True):
            replies[at] = reply
    return bool(unknown)


def _is_unknown(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code == "NOSCRIPT"
