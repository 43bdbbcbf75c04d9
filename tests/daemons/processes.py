"""Starting daemons and workers as processes, hearing what they say, and moving the clock."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing.world import move_clock

SUBJECT = "gbe.tasks.mail.terminal"
PATIENCE_SECS = 60


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of worker.py in that role."""
    worker = str(Path(__file__).with_name("worker.py"))
    words = [json.dumps(word) for word in arguments]
    return _started([worker, role, *words])


def command(*arguments: object) -> subprocess.Popen[str]:
    """A process of `python -m holdfast`."""
    return _started(["-m", "holdfast", *map(str, arguments)], stderr=subprocess.PIPE)


_running: list[subprocess.Popen[str]] = []


def _started(words: list[str], **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - Popen's
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )
    _running.append(process)
    return process


def end_all() -> None:
    """End what a failed test has left running."""
    while _running:
        with _running.pop() as process:  # which closes its pipes
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line that the process says; fails when none comes."""
    assert process.stdout is not None
    line = b""
    # Byte by byte: what a buffer has taken, the next wait would not see.
    while not line.endswith(b"\n"):
        assert select.select([process.stdout], [], [], PATIENCE_SECS)[0], "the process said nothing"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, f"the process ended after {line!r}"
        line += byte
    return line.decode().strip()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End it without warning: what it had said and nobody had heard."""
    process.kill()
    output, _ = process.communicate(timeout=PATIENCE_SECS)
    return [line for line in output.splitlines(keepends=True) if line.endswith("\n")]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of a process that ends by itself."""
    output, errors = process.communicate(timeout=PATIENCE_SECS)
    return process.returncode, output, errors


def totals(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a command that was asked for JSON says at its end."""
    code, output, errors = ended(process)
    assert code == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


def pass_time(url: str, seconds: float) -> None:
    """Shift the store's clock."""

    async def move() -> None:
        async with holdfast.open_async(url) as store:
            await move_clock(store, seconds)

    asyncio.run(move())


def publish(store: holdfast.Store, count: int, *, size: int = 10) -> set[str]:
    """Publish messages about tasks that have ended; their ids."""
    return {
        store.transport.publish(SUBJECT, {"task_id": f"{number}", "filling": f"{number:0{size}}"})
        for number in range(count)
    }


def archived(folder: Path) -> list[str]:
    """The ids of the messages in the archive."""
    if not folder.exists():
        return []
    return [message.message_id for message in holdfast.read_archive(folder)]


def stuck(store: holdfast.Store, count: int) -> None:
    """Make tasks that somebody has claimed for half a minute."""
    for number in range(count):
        assert store.tasks.create("mail", str(number))
        assert store.tasks.claim("mail", str(number), "dead", timeout=30)


def until(reached: Callable[[], bool]) -> None:
    """Return when the condition holds; fails when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECS
    while not reached():
        assert time.monotonic() < deadline, "did not come about"
        select.select([], [], [], 0.02)
