"""The list of a store's namespaces: who writes to one puts it there first.

    holdfast.namespaces.<namespace>    its name, which the token of a long one does not tell

The subjects of a stream would tell them too, but only by listing every record.
"""

from __future__ import annotations

from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import namespace_token
from holdfast.backends.nats.swap import swap
from holdfast.errors import StoreError

_KIND = "namespaces"


class Namespaces:
    """See above."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._root = f"{stream.root}.{_KIND}."
        self._noted: set[str] = set()

    async def note(self, namespace: str, deadline: float) -> None:
        """See to it that the namespace is listed, before something is written to it."""
        if namespace in self._noted:
            return
        entry = Message(self._root + namespace_token(namespace), namespace.encode(), 0)
        try:
            await swap(self._stream, [entry], deadline)  # if it is refused, it was there
        except StoreError as exc:
            exc.outcome_unknown = False  # of what was to be written after it
            raise
        self._noted.add(namespace)

    async def listed(self, deadline: float) -> list[str]:
        """All that were ever noted, in byte order."""
        subjects: set[str] = set()
        async for page in self._stream.subjects(f"{self._root}*"):
            subjects.update(page.subjects)
        found = await self._stream.get_many(sorted(subjects), deadline)
        return [name.decode() for name in sorted(entry.data for entry in found.values())]
