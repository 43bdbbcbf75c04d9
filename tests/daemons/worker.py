"""Processes that the tests start: they say what they have done, and are killed.

python worker.py ROLE ARGUMENTS-AS-JSON …
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.archive import ArchiveFolder
from holdfast.archive import folder as files


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def archive(url: str, folder: str, halt_after: int | None) -> None:
    """Archive without end, and say the number of messages that are done.

    After so many batches, if that is given, half of the next one is written and no more.
    """
    real = os.pwrite

    def small(descriptor: int, data: memoryview, at: int) -> int:
        written = real(descriptor, data[:50], at)  # as short as a system's write may be
        if archiver.totals.batches == halt_after:
            say("half")
            sys.stdin.readline()
        return written

    files.os.pwrite = small  # type: ignore[attr-defined]
    archiver = holdfast.Archiver(holdfast.open(url), folder, batch=3)
    while True:
        say(archiver.archive(60))


def ack_first(url: str, folder: str, halt_after: int | None) -> None:
    """The control: says that a batch is done before it is in a file."""
    writer = ArchiveFolder(folder)
    consumer = holdfast.open(url).transport.consumer(
        "archiver", "gbe.tasks.*.terminal", prefetch=3, from_start=True
    )
    for done in itertools.count():
        batch = consumer.next_batch(60)
        acked = consumer.ack_batch(batch)
        if done == halt_after:
            say("half")
            sys.stdin.readline()
        say(acked)
        writer.add([delivery.message for delivery in batch])


def archive_with_little_room(url: str, folder: str, room: int) -> None:
    """Archive until no file may grow any more; say what that looks like."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    archiver = holdfast.Archiver(holdfast.open(url), folder, batch=1)
    try:
        while archiver.archive():
            pass
    except holdfast.StoreError as exc:
        say(exc.code, exc.retryable, str(exc).rpartition(": ")[2])
    say(archiver.totals.messages)


def sweep(url: str) -> None:
    """Sweep, and say after each task that it was retried; go on when the parent says so."""
    store = holdfast.open(url)
    sweeper = holdfast.Sweeper(store)
    tasks = sweeper._tasks  # noqa: SLF001 - to stop in the middle
    real = tasks.retry

    def retry(task: holdfast.TaskState) -> bool:
        done = real(task)
        say("retried", task.task_id)
        sys.stdin.readline()
        return done

    tasks.retry = retry  # type: ignore[method-assign]
    sweeper.sweep()


def claim(url: str, task_id: str, worker: str) -> None:
    """Take the task and be at it for ever."""
    store = holdfast.open(url)
    say(store.tasks.claim("mail", task_id, worker, timeout=30) is not None)
    sys.stdin.readline()


ROLES: dict[str, Callable[..., Any]] = {
    role.__name__: role for role in (archive, ack_first, archive_with_little_room, sweep, claim)
}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    ROLES[name](*map(json.loads, arguments))
