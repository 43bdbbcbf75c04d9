"""Removing old messages that are done, namespace by namespace, from the oldest on.

In each it ends at the first message that is younger, or that a group has not come to: what is
behind that is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.deliveries import Deliveries
from holdfast.backends.nats.groups import GroupBody, Groups
from holdfast.backends.nats.messages import Messages, Wanted, decode_body
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.codec import INT64_MAX

_LOOK_AT = 256  # messages at a time


class Purging:
    """See above."""

    def __init__(
        self,
        clock: NatsClock,
        groups: Groups,
        deliveries: Deliveries,
        messages: Messages,
        namespaces: Namespaces,
    ) -> None:
        self._stream = messages.stream
        self._clock = clock
        self._groups = groups
        self._deliveries = deliveries
        self._messages = messages
        self._namespaces = namespaces

    async def purge(self, older_than_us: int, limit: int) -> int:
        """See TransportBackend."""
        deadline = self._stream.deadline()
        cutoff = await self._clock.now_us(deadline) - older_than_us
        # The groups first: what one takes after that is above the position that is known here.
        groups = await self._groups.bodies(deadline)
        gone = 0
        for namespace in await self._namespaces.listed(deadline):
            ours = [body for body in groups if body.namespace == namespace]
            gone += await self._purge(namespace, ours, cutoff, limit - gone)
            if gone == limit:
                break
        return gone

    async def _purge(
        self, namespace: str, groups: Sequence[GroupBody], cutoff: int, limit: int
    ) -> int:
        gone = 0
        passed: int | None = None
        async for old in self._old(namespace, cutoff):
            deadline = self._stream.deadline()
            if passed is None:
                passed = await self._passed(groups, deadline)
            found = [place for place in old if place <= passed]
            held = await self._held(groups, found, deadline)
            done = [place for place in found if place not in held][: limit - gone]
            gone += sum(
                await asyncio.gather(*(self._stream.remove(place, deadline) for place in done))
            )
            if gone == limit or len(found) < len(old):
                break
        return gone

    async def _old(self, namespace: str, cutoff: int) -> AsyncIterator[list[int]]:
        """The places of the oldest messages, some at a time, up to one that is younger."""
        after, left = 0, 1
        at_once = 1  # at first: it is young, most of the time
        while left:
            entries, left = await self._messages.page(
                namespace, after, at_once, self._stream.deadline()
            )
            old: list[int] = []
            for entry in entries:
                if decode_body(entry.data).published_at >= cutoff:
                    left = 0
                    break
                old.append(entry.seq)
            if not old:
                return
            yield old
            after, at_once = old[-1], _LOOK_AT

    async def _passed(self, groups: Sequence[GroupBody], deadline: float) -> int:
        """The place up to which every group got what it asks for."""
        reached = [
            await self._messages.reached(
                Wanted(self._stream.root, body.namespace, body.subjects), body.position, deadline
            )
            for body in groups
        ]
        return min(reached, default=INT64_MAX)

    async def _held(
        self, groups: Sequence[GroupBody], places: Sequence[int], deadline: float
    ) -> set[int]:
        """Those that some group got and has not done, or gave up."""
        held: set[int] = set()
        for body in groups:
            held |= await self._deliveries.undone(body.id, places, deadline)
        return held
