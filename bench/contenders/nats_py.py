"""Bare nats-py: a JetStream key-value bucket, a record is one JSON value.

Changing one field is a read and an update of the revision that was read.
"""

from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import nats
from nats.js.api import KeyValueConfig, StorageType

from bench.callers import AsyncStep
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written


class Program:
    """The usual way to a NATS bucket."""

    colour = "async"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        parts = urlsplit(where)
        self._server: Final = f"nats://{parts.netloc}"
        self._bucket: Final = parse_qs(parts.query)["bucket"][0]
        self._work: Final = work
        self._written: Final = Written(work)
        self._nats: Any = None
        self._kv: Any = None

    async def open(self) -> None:
        """Make the bucket, with its records."""
        self._nats = await nats.connect(self._server)
        # Direct reads, as whoever wants speed sets it.
        config = KeyValueConfig(self._bucket, storage=StorageType.FILE, direct=True)
        self._kv = await self._nats.jetstream().create_key_value(config)
        for name in self._written.last:
            await self._kv.put(name, _encode(record(0)))

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation."""
        names = self._work.cells(number)
        kv, last = self._kv, self._written.last

        async def put(n: int) -> object:
            name = names[n % len(names)]
            await kv.put(name, _encode(record(n)))
            last[name] = n
            return None

        async def change(n: int) -> object:
            name = names[n % len(names)]
            entry = await kv.get(name)
            fields = _decode(entry.value)
            assert fields["step"] == last[name]
            await kv.update(name, _encode({**fields, "step": n}), last=entry.revision)
            last[name] = n
            return None

        async def get(n: int) -> object:
            return _decode((await kv.get(names[n % len(names)])).value)

        return {"put": put, "set_field": change, "compare_and_swap": change, "get": get}[
            self._work.operation
        ]

    async def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            self._written.check(name, _decode((await self._kv.get(name)).value))

    async def close(self) -> None:
        """Close the connection."""
        await self._nats.close()


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, str | int]).decode
