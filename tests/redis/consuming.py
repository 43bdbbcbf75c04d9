"""A consumer process of test_transport_kills: says what it holds and what it has done."""

from __future__ import annotations

import sys

import holdfast

_, URL, PREFETCH = sys.argv


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


with (
    holdfast.open(URL) as store,
    store.transport.consumer("g", prefetch=int(PREFETCH)) as consumer,
):
    for delivery in consumer:
        message_id = delivery.message.message_id
        say("holds", message_id)
        if delivery.message.payload % 3:  # the others it keeps to itself
            say("answers", message_id)
            took_effect = delivery.ack()
            say("done" if took_effect else "late", message_id)
