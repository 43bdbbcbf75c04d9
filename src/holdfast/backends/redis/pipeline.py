"""Units of work as one pipeline: sent together, answered one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.backends.batching import NotBegun
from holdfast.backends.redis.connection import RedisConnection
from holdfast.backends.redis.errors import translate
from holdfast.backends.redis.protocol import Command, Refusal, Reply
from holdfast.backends.redis.script import text_of
from holdfast.backends.redis.servers import Address, Servers, is_redirection
from holdfast.errors import StoreError, Unavailable
from holdfast.runtime import Unit

Item_contra = TypeVar("Item_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

_WAIT_SHARE = 0.9  # of call_timeout: the server must answer before we give it up


class Operation(Protocol[Item_contra, Answer_co]):
    """One hot operation: each item is one command."""

    @property
    def writes(self) -> bool:
        """True if it may change something."""

    def command(self, item: Item_contra, *, repeat: bool) -> Command:
        """The command; in a repeat an earlier one may have been applied."""

    def answer(self, reply: Reply, item: Item_contra) -> Answer_co:
        """What the server's answer means."""


class Pipeline:
    """One attempt after the other to have units done by one server. See Attempt."""

    def __init__(self, servers: Servers, address: Address, wait_replicas: int) -> None:
        self._servers = servers
        self._pool = servers.pool(address)
        self._wait = wait_replicas

    async def __call__(self, units: list[Unit], *, repeat: bool, patient: bool) -> None:
        """See Attempt. What was answered before a connection broke is settled."""
        del patient  # nothing here waits for locks
        left = [unit for unit in units if not unit.settled]
        commands = [unit.batch.command(item, repeat=repeat) for unit in left for item in unit.items]
        replies: list[Reply] = []
        try:
            lease = await self._pool.take()
        except StoreError as exc:
            raise NotBegun(exc) from exc
        async with lease as connection:
            try:
                await connection.exchange(commands, replies)
                await call_unknown(connection, commands, replies)
                await self._servers.follow(commands, replies)
                missing = await self._missing_replicas(connection, commands[0])
            except StoreError as exc:
                if not self._wait:
                    self._settle(_answered(left, replies))
                if not any(unit.batch.writes for unit in left):
                    exc.outcome_unknown = False
                raise
        if missing is not None:
            for unit in left:
                unit.fail(Unavailable(f"{self._pool.where}: {missing}", outcome_unknown=True))
        self._settle(_answered(left, replies))

    async def _missing_replicas(self, connection: RedisConnection, first: Command) -> str | None:
        """What to say if too few replicas have it; None if enough have."""
        if not self._wait:
            return None
        replies: list[Reply] = []
        millis = int(self._servers.settings.call_timeout * 1000 * _WAIT_SHARE)
        # All writes are scripts, whose first key is the base of their namespace.
        # WAIT is about the connection's own writes, and an operation that was known made none.
        # What comes after it has come after everything before.
        touch = (b"SET", first[3] + b":wait", b"", b"PX", b"1000")
        wait = (b"WAIT", b"%d" % self._wait, b"%d" % max(1, millis))
        await connection.exchange([touch, wait], replies)
        if isinstance(replies[-1], int) and replies[-1] >= self._wait:
            return None
        return f"written, but only {replies[-1]} of {self._wait} replicas have it so far"

    def _settle(self, answered: Iterator[tuple[Unit, Sequence[Reply]]]) -> None:
        for unit, replies in answered:
            if unit.settled:
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


async def call_unknown(
    connection: RedisConnection, commands: Sequence[Command], replies: list[Reply]
) -> None:
    """Load the scripts that the server did not know, and call them again."""
    unknown = [at for at, reply in enumerate(replies) if _is_unknown(reply)]
    if unknown:
        loading = [
            (b"SCRIPT", b"LOAD", text_of(sha)) for sha in {commands[at][1] for at in unknown}
        ]
        again: list[Reply] = []
        await connection.exchange([*loading, *(commands[at] for at in unknown)], again)
        for at, reply in zip(unknown, again[len(loading) :], strict=True):
            replies[at] = reply


def _answered(units: list[Unit], replies: list[Reply]) -> Iterator[tuple[Unit, Sequence[Reply]]]:
    """The units whose answers are all there, with them."""
    begin = 0
    for unit in units:
        end = begin + len(unit.items)
        if end <= len(replies) and not any(
            is_redirection(reply) or _is_unknown(reply) for reply in replies[begin:end]
        ):
            yield unit, replies[begin:end]
        begin = end


def _is_unknown(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code == "NOSCRIPT"
