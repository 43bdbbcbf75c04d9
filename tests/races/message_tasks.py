"""Publishers and consumers of a race; each function is a task of `holdfast.testing.fleet`."""

import contextlib
import random
import time
from collections.abc import Callable

import holdfast
from holdfast import Capability

_PATIENCE = 60


class CalledOffError(Exception):
    pass


def publish(gate: Callable[[], None], *, url: str, racer: int, messages: int) -> list[str]:
    """Publish alone, in slow transactions and in some that are rolled back; what was published.

    Where there are no transactions, all of it alone.
    """
    rng = random.Random(racer)
    sent = []
    with holdfast.open(url) as store:
        kinds = 4 if Capability.TRANSACTIONS in store.capabilities else 0
        gate()
        for number in range(messages):
            message = f"{racer}.{number}"
            match rng.randrange(kinds) if kinds else None:
                case 0:
                    with store.transaction(timeout=30) as tx:
                        tx.transport.publish("work", message, message_id=message)
                        time.sleep(rng.uniform(0, 0.01))
                    sent.append(message)
                case 1:
                    with (
                        contextlib.suppress(CalledOffError),
                        store.transaction(timeout=30) as tx,
                    ):
                        tx.transport.publish("work", f"never {message}")
                        raise CalledOffError
                case _:
                    store.transport.publish("work", message, message_id=message)
                    sent.append(message)
    return sent


def consume(
    gate: Callable[[], None], *, url: str, racer: int, group: str, ack_first: bool
) -> dict[str, list[str]]:
    """Consume until nothing comes any more, giving some back; what was acknowledged, and seen.

    With `ack_first`, the control, an answer counts although it did not take effect.
    """
    rng = random.Random(racer)
    done, seen = [], []
    with holdfast.open(url) as store:
        gate()
        with store.transport.consumer(group, prefetch=rng.randrange(1, 6)) as consumer:
            while (delivery := consumer.next(3)) is not None:
                message = delivery.message.payload
                seen.append(message)
                match rng.randrange(10):
                    case 0:
                        delivery.nak(rng.choice([0, 0.02]))
                    case 1:
                        time.sleep(0.3)  # too long: somebody else gets it
                        if delivery.ack() or ack_first:
                            done.append(message)
                    case _:
                        if delivery.ack():
                            done.append(message)
    return {"done": done, "seen": seen}
