"""The shards that a projector looks after: see facets/shards.py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import uuid_utils

from holdfast.clock import MICROSECONDS
from holdfast.facets.records import FieldValue, Stamp
from holdfast.facets.shards import WORKERS, Seen, Shard, shard_key, shard_of, shards_prefix

if TYPE_CHECKING:
    from holdfast.aio.store import AsyncStore

Taken = list[Shard]
Settings = dict[str, FieldValue | Stamp | None]


class AsyncShards:
    """Takes shards, keeps them by prolonging their leases, gives away what is not its part."""

    def __init__(self, store: AsyncStore, *, count: int, lease_us: int) -> None:
        self._store = store
        self._count = count
        self._lease = lease_us / MICROSECONDS
        self._worker = str(uuid_utils.uuid7())
        self._renewed_at = 0.0
        self._settled_at = 0.0
        self.owned: dict[int, Shard] = {}
        self.new: Taken = []
        """What was taken since it last was `settled`."""

    def of(self, run_id: str) -> Shard | None:
        """The run's shard, if it is ours."""
        return self.owned.get(shard_of(run_id, self._count))

    @property
    def due(self) -> bool:
        """True when it is time to renew and take again: two may fail before the lease ends."""
        return time.monotonic() - self._settled_at >= self._lease / 3

    @property
    def expired(self) -> bool:
        """True when others may have taken what is ours."""
        return time.monotonic() - self._renewed_at >= self._lease

    async def renew(self) -> Taken:
        """Prolong the leases and write the positions down; what was lost to others."""
        begun = time.monotonic()
        key = WORKERS + self._worker
        await self._store.records.put(key, {"worker": self._worker}, ttl=self._lease)
        lost = [shard for shard in self.owned.values() if not await self._write(shard)]
        for shard in lost:
            del self.owned[shard.index]
        self._renewed_at = begun
        return lost

    async def take(self) -> None:
        """Take what is free, up to this projector's part: into `owned` and `new`."""
        part = await self._part()
        if len(self.owned) >= part:
            return
        now_ms = int((await self._store.now()).timestamp() * 1000)
        found = {index: Seen.of({}) for index in range(self._count)}
        async for key, record in self._store.records.scan(shards_prefix(self._count)):
            found[int(key.rpartition(".")[2])] = Seen.of(record.fields)
        for index, seen in found.items():
            # Ours and unknown: a claim whose answer was lost.
            free = seen.free(now_ms) or seen.owner == self._worker.encode()
            if free and len(self.owned) < part and index not in self.owned:
                shard = await self._claim(index, seen)
                if shard is not None:
                    self.owned[index] = shard
                    self.new.append(shard)

    def settled(self) -> None:
        """All of it went well: it is time again in a third of the lease."""
        self._settled_at = self._renewed_at
        self.new.clear()

    async def surplus(self) -> Taken:
        """What is more than this projector's part, to be released."""
        part = await self._part()
        return list(self.owned.values())[part:]

    async def release(self, shards: Taken) -> None:
        """Write the positions down and let others have the shards, at once."""
        for shard in shards:
            if self.owned.pop(shard.index, None) is not None:
                await self._write(shard, let_go=True)

    async def leave(self) -> None:
        """Release everything, and be gone."""
        await self.release(list(self.owned.values()))
        await self._store.records.delete(WORKERS + self._worker)

    async def _part(self) -> int:
        workers = {WORKERS + self._worker}
        async for key, _ in self._store.records.scan(WORKERS):
            workers.add(key)
        return -(-self._count // len(workers))

    async def _claim(self, index: int, seen: Seen) -> Shard | None:
        token = int(seen.token or 0) + 1
        claimed = await self._store.records.compare_and_set(
            shard_key(index, self._count),
            # Also the lease: its owner may have come back and prolonged it meanwhile.
            expect={"owner": seen.owner, "token": seen.token, "lease_until": seen.lease_until},
            set={"owner": self._worker, "token": token, "lease_until": Stamp(after=self._lease)},
        )
        return Shard(index, token, seen.positions) if claimed else None

    async def _write(self, shard: Shard, *, let_go: bool = False) -> bool:
        until: Settings = {"lease_until": Stamp(after=self._lease)}
        if let_go:
            until = {"lease_until": None, "owner": None}
        return await self._store.records.compare_and_set(
            shard_key(shard.index, self._count),
            expect={"owner": self._worker, "token": shard.token},
            set={**shard.fields(), **until},
        )
