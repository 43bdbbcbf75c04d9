"""Entries written together if nobody came between, also when an answer is lost.

Unlike change.py this decides nothing: who loses is told so, and looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up
from holdfast.backends.nats.stream import Stream
from holdfast.errors import StoreError

_PAUSE = 0.002


async def swap(stream: Stream, messages: Sequence[Message], deadline: float) -> int | None:
    """The first one's sequence number, which the others follow; None if a condition did not hold.

    The first message must have a condition, and content that no other write has: that tells
    what became of them when an answer is lost. None may then also mean that they were stored,
    and the first was replaced by somebody else since; where that matters the first is one that
    nobody replaces (operations.py).
    """
    lost: NoAnswer | None = None
    last: Exception | None = None
    try:
        while True:
            await stream.ready(deadline)
            patience = stream.patience(deadline)
            if patience <= 0:
                raise gave_up(last, stream.where, write=True) from last
            try:
                return await _publish(stream, messages, patience)
            except NotSent as exc:
                last = exc
                await asyncio.sleep(_PAUSE)
                continue
            except NoAnswer as exc:
                lost = last = exc
                refused = False
            except WrongSequence:
                if lost is None:
                    return None
                refused = True
            found = await stream.get(messages[0].subject, deadline)
            if found is not None and found.data == messages[0].data:
                return found.seq
            if refused or (found.seq if found else 0) != messages[0].expected:
                return None
            # Once more under the same conditions: one of the two at most is stored.
    except StoreError as exc:
        exc.outcome_unknown |= lost is not None
        raise


async def _publish(stream: Stream, messages: Sequence[Message], patience: float) -> int:
    if len(messages) == 1:
        return await stream.publish(messages[0], patience)
    return (await stream.publish_all(messages, patience))[0]
