"""Processes that the tests start: one that is killed while it puts, and some that run to their end.

python worker.py ROLE URL OPTIONS-AS-JSON ARGUMENTS-AS-JSON …
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast import ClaimCheck, StoreError


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def contents(seed: int) -> Iterator[bytes]:
    """Contents that differ; made in no time, so that a kill meets a put."""
    rng = random.Random(seed)
    filling = rng.randbytes(3_000_000)
    while True:
        yield rng.randbytes(8) + filling[rng.randrange(len(filling)) :]


def put_forever(claims: ClaimCheck, seed: int, *_: str) -> None:
    """Put one content after another, and say each reference after it was acknowledged."""
    for data in contents(seed):
        say(claims.put(data))


def put_in_place_forever(_claims: ClaimCheck, seed: int, folder: str) -> None:
    """The control: the object's own file is written, which a kill leaves half."""
    for data in contents(seed):
        digest = hashlib.sha256(data).hexdigest()
        with Path(folder, digest).open("wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            for _ in range(5):  # so long that most kills come now
                hashlib.sha256(data)
            file.write(data[len(data) // 2 :])
        say(f"claim:sha256:{digest}:{len(data)}")


def put_the_same(claims: ClaimCheck, rounds: int) -> None:
    """Put the same few contents again and again, and read each."""
    for number in range(rounds):
        data = bytes([number % 5]) * 100_000
        if claims.get(claims.put(data)) != data:
            say("wrong", number)
    say("done")


def put_beyond_the_limit(claims: ClaimCheck, path: str) -> None:
    """Put more than a file may hold here, then something small."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    puts: list[Callable[[], str]] = [
        lambda: claims.put(bytes(2_000_000)),
        lambda: claims.put_file(path),
    ]
    for put in puts:
        try:
            say(put())
        except StoreError as exc:
            say(exc.code, exc.outcome_unknown, str(exc).rpartition(": ")[2])
    say(claims.get(claims.put(b"small")).decode())


def stream(claims: ClaimCheck, path: str) -> None:
    """Put the file and read it back; say the most megabytes of memory that each way took."""
    with claims.open(claims.put_file(__file__)) as file:  # so that everything is imported
        file.read()
    tracemalloc.start()
    ref = claims.put_file(path)
    with claims.open(ref) as file:
        length = sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))
    _, streamed = tracemalloc.get_traced_memory()
    whole = len(claims.get(ref))
    _, at_once = tracemalloc.get_traced_memory()
    say(length, whole, streamed >> 20, at_once >> 20)


def fork(claims: ClaimCheck) -> None:
    """Use one claim check before a fork, in the child, and after it."""
    ref = claims.put(b"before")
    child = os.fork()
    if child == 0:
        say("child", claims.get(ref).decode(), claims.get(claims.put(b"after")).decode())
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", claims.get(claims.put(b"after")).decode())


ROLES: dict[str, Callable[..., None]] = {
    role.__name__: role
    for role in (
        put_forever,
        put_in_place_forever,
        put_the_same,
        put_beyond_the_limit,
        stream,
        fork,
    )
}

if __name__ == "__main__":
    name, url, options, *arguments = sys.argv[1:]
    ROLES[name](ClaimCheck(url, **json.loads(options)), *map(json.loads, arguments))
