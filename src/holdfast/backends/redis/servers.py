"""Which server a key is on: the one that the URL names, or a node of its cluster.

A cluster tells its nodes by slots. What a node answers with MOVED was not done: the map is
read anew, and the command goes where the answer says. ASK is not followed: while a slot is moved
key by key, a script at its new place would not see what is still at the old one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from redis.crc import key_slot

from holdfast.backends.pool import Pool
from holdfast.backends.redis.connection import BlockingConnection, RedisConnection, Settings
from holdfast.backends.redis.connection_async import AsyncConnection
from holdfast.backends.redis.errors import translate
from holdfast.backends.redis.protocol import Command, Refusal, Reply
from holdfast.backends.redis.script import text_of
from holdfast.config import StoreConfig, seconds
from holdfast.errors import InvalidArgument, StoreError, Unavailable
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime

Address = tuple[str, int]
_MOST_HOPS = 5
_LONGEST = 1_000_000.0  # seconds: what every timer takes


class _Range(NamedTuple):
    first: int
    last: int
    address: Address


class Servers:
    """The servers of one store."""

    def __init__(self, url: str, config: StoreConfig, runtime: Runtime) -> None:
        scheme, _, rest = url.partition("://")
        self.cluster = scheme.endswith("+cluster")
        self._runtime = runtime
        self.pool_size = config.pool_size
        self._patience = min(seconds(config.connect_timeout), _LONGEST)
        self.settings = _settings(f"{scheme.partition('+')[0]}://{rest}", self._patience, config)
        options = self.settings.options
        self.seed: Address = (
            str(options.get("host", "localhost")),
            int(options.get("port", 6379)),
        )
        """The server that the URL names; without a cluster all keys are there."""
        self._map: list[_Range] = []
        self._nodes: list[Address] = []  # all that were heard of, replicas too
        self._pools: dict[Address, Pool[RedisConnection]] = {}

    @property
    def where(self) -> str:
        """The server that the URL names, for people."""
        return _shown(self.seed)

    async def find(self) -> None:
        """Read the map of a cluster, from whichever node answers."""
        if not self.cluster:
            return
        error: StoreError = Unavailable(f"{self.where}: no node of the cluster is known")
        # Who answered last comes first: to find out that a machine is gone may take long.
        for address in dict.fromkeys([*self._nodes, self.seed]):
            try:
                found = await self._read_map(address)
            except StoreError as exc:
                error = exc
            else:
                self._map = [_Range(first, last, nodes[0]) for first, last, nodes in found]
                others = (node for _, _, nodes in found for node in nodes)
                self._nodes = list(dict.fromkeys([address, *others]))
                return
        raise error

    def address(self, key: bytes) -> Address:
        """Where the key is, as far as we know."""
        if not self.cluster:
            return self.seed
        slot = key_slot(key)
        for part in self._map:
            if part.first <= slot <= part.last:
                return part.address
        return self.seed  # which will say that nobody serves it

    async def look_again(self) -> None:
        """Read the map anew after a node was lost, if any other answers."""
        with contextlib.suppress(StoreError):
            await self.find()

    def pool(self, address: Address) -> Pool[RedisConnection]:
        """The connections to that server."""
        # setdefault: two threads may come here first at once, and must share one.
        found = self._pools.get(address)
        return found or self._pools.setdefault(address, self._new_pool(address))

    async def follow(self, commands: Sequence[Command], replies: list[Reply]) -> None:
        """Have the commands done whose answers only say on which node that is."""
        for at in range(len(replies)):
            for _ in range(_MOST_HOPS if self.cluster else 0):
                if not is_redirection(replies[at]):
                    break
                replies[at] = await self._redirect(commands[at], replies[at])

    async def close(self) -> None:
        """Free all connections."""
        for pool in list(self._pools.values()):
            await pool.close()

    async def _redirect(self, command: Command, told: Refusal) -> Reply:
        if command[0] == b"EVALSHA":  # that node may not know the script
            command = (b"EVAL", text_of(command[1]), *command[2:])
        await self.find()
        replies: list[Reply] = []
        host, _, port = told.words.split()[-1].rpartition(":")
        address = (host or self.seed[0], int(port))
        async with await self.pool(address).take() as connection:
            await connection.exchange([command], replies)
        return replies[0]

    def _new_pool(self, address: Address) -> Pool[RedisConnection]:
        where = _shown(address)
        at = address if self.cluster else None

        async def connect() -> RedisConnection:
            settings = self.settings
            if isinstance(self._runtime, BlockingRuntime):
                raw = settings.open_blocking(where, at)
                return BlockingConnection(raw, where, settings.call_timeout)
            raw = await settings.open_async(where, at)
            connection = AsyncConnection(raw, where, settings.call_timeout)
            await connection.take_over()
            return connection

        return Pool(connect, self._runtime, where, size=self.pool_size, patience=self._patience)

    async def _read_map(self, address: Address) -> list[tuple[int, int, list[Address]]]:
        """The slots from the first to the last, and who has them, the primary first."""
        replies: list[Reply] = []
        async with await self.pool(address).take() as connection:
            await connection.exchange([(b"CLUSTER", b"SLOTS")], replies)
        if isinstance(replies[0], Refusal):
            raise translate(replies[0], _shown(address)) from replies[0]
        return [
            # A node that does not know its own name is the one that was asked.
            (
                first,
                last,
                [((host or b"").decode() or address[0], port) for host, port, *_ in nodes],
            )
            for first, last, *nodes in replies[0]
        ]


def is_redirection(reply: Reply) -> bool:
    """True if the server only says on which one the key is."""
    return isinstance(reply, Refusal) and reply.code == "MOVED"


def _settings(url: str, patience: float, config: StoreConfig) -> Settings:
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        # Not quoted: behind an unescaped / in a password this is the password's rest.
        raise InvalidArgument("store URL: wanted the number of a database behind the host's /")
    timeout = min(seconds(config.call_timeout), _LONGEST)
    try:
        return Settings(url, connect_timeout=patience, call_timeout=timeout)
    except TypeError as exc:
        option = str(exc).rpartition(" ")[2]
        raise InvalidArgument(f"store URL: unknown option {option}") from None
    except ValueError as exc:
        raise InvalidArgument(f"store URL: {exc}") from None


def _shown(address: Address) -> str:
    return f"redis {address[0]}:{address[1]}"
