"""What became of operations on groups and dead letters: one entry each in the store's state.

    holdfast.operations.<namespace>.<operation's id>    [answer, group's id, try]

It is written together with what the operation changes, as the first, and nobody replaces it: so
who lost the answer finds it, and the same operation again has it too. The server removes it when
its time is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place
from holdfast.backends.nats.swap import swap
from holdfast.facets.transport import Operation

_KIND = "operations"


class Done(msgspec.Struct, array_like=True, frozen=True):
    """What an operation came to: its answer, and on which group."""

    answer: bool
    group_id: str
    attempt: bytes  # tells two tries of the same operation apart


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Done).decode


class Operations:
    """See above."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def known(self, namespace: str, operation: Operation, deadline: float) -> Done | None:
        """What the operation came to, if it was done before."""
        found = await self._stream.get(self._subject(namespace, operation), deadline)
        return _decode(found.data) if found is not None and found.data else None

    async def do(
        self,
        namespace: str,
        operation: Operation,
        writes: Sequence[Message],
        deadline: float,
        *,
        answer: bool,
        group_id: str = "",
    ) -> bool:
        """Write it all, with the answer; False if somebody came between: look again."""
        done = _encode(Done(answer, group_id, uuid4().bytes))
        subject = self._subject(namespace, operation)
        note = Message(subject, done, 0, operation.kept_secs, marker=True)
        return await swap(self._stream, [note, *writes], deadline) is not None

    def _subject(self, namespace: str, operation: Operation) -> str:
        return Place(self._stream.root, _KIND, namespace).root + operation.id.hex()
