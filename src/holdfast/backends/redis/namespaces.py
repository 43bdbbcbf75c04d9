"""The list of a store's namespaces: who writes to one puts it there first.

A set of its own, because in a cluster each namespace is on one node and SCAN would read every
key of all nodes.
"""

from __future__ import annotations

import time

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys
from holdfast.errors import StoreError

_AGAIN = 60.0  # seconds after which to list it anew: a failover may lose what was added last


class RedisNamespaces:
    """See above."""

    def __init__(self, db: RedisDb, keys: Keys) -> None:
        self._db = db
        self._keys = keys
        self._noted: dict[str, float] = {}

    async def note(self, namespace: str) -> float:
        """See to it that the namespace is listed, before something is written to it.

        Gives until when that need not be asked for again, by time.monotonic().
        """
        now = time.monotonic()
        noted = self._noted.get(namespace, 0.0)
        if now < noted:
            return noted
        key = self._keys.namespaces
        try:
            await self._db.ask([(b"SADD", key, namespace.encode())], key)
        except StoreError:
            # A full server takes deletions, but refuses to add even what is there.
            if namespace not in self._noted and not await self._is_listed(namespace):
                raise
        await self._db.count_listeners()
        self._noted[namespace] = noted = now + _AGAIN
        return noted

    async def listed(self) -> list[str]:
        """All that were ever noted, in byte order."""
        key = self._keys.namespaces
        (names,) = await self._db.ask([(b"SMEMBERS", key)], key)
        return [name.decode() for name in sorted(names)]

    async def filled(self) -> list[str]:
        """Those in which there is something."""
        return [name for name in await self.listed() if await self._is_filled(name)]

    async def _is_listed(self, namespace: str) -> bool:
        key = self._keys.namespaces
        (listed,) = await self._db.ask([(b"SISMEMBER", key, namespace.encode())], key)
        return bool(listed)

    async def _is_filled(self, namespace: str) -> bool:
        base = self._keys.base(namespace)
        kinds = [base + b":" + kind for kind in (b"keys", b"cells", b"groups", b"runs")]
        counts = await self._db.ask([(b"EXISTS", *kinds), (b"XLEN", base + b":messages")], base)
        return any(counts)
