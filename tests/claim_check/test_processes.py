"""Several processes on one claim check: at once, killed, forked, short of disk and of memory."""

from __future__ import annotations

import hashlib
import random
import select
from pathlib import Path

import pytest

from tests.claim_check.sites import Site, told

KILLS = 12
SILENCE_SECS = 60
MIB = 1 << 20


def objects(site: Site) -> list[str]:
    return [name for name in site.names() if not name.startswith(".")]


def kill_often(site: Site, role: str, rng: random.Random) -> tuple[list[str], int]:
    """The references that were acknowledged, and how many kills met a put in flight."""
    refs: list[str] = []
    for _ in range(KILLS):
        folder = site.url.removeprefix("file://")
        with site.start(role, rng.randrange(10**9), folder) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 4)):
                assert select.select([process.stdout], [], [], SILENCE_SECS)[0], "silence"
                refs.append(process.stdout.readline().strip())
            # Not to wait for anything: the moment of the kill is to be a random one.
            select.select([], [], [], rng.uniform(0, 0.01))
            process.kill()
            refs += [line.strip() for line in process.stdout if line.endswith("\n")]
    return refs, len([name for name in site.names() if name.endswith(".partial")])


def check(site: Site, refs: list[str]) -> None:
    """Everything acknowledged is there, and everything that is there is whole."""
    claims = site.claims()
    for ref in refs:
        claims.get(ref)
    for name in objects(site):
        assert hashlib.sha256(site.read(name)).hexdigest() == name, f"half of {name}"


def test_kill_leaves_no_half_object_and_loses_nothing(tmp_path: Path) -> None:
    site = Site(f"file://{tmp_path}/claims")
    seed = random.randrange(10**9)
    refs, in_flight = kill_often(site, "put_forever", random.Random(seed))
    check(site, refs)
    left = len(site.names())
    assert in_flight >= KILLS / 4, f"void: {in_flight} of {KILLS} kills met a put, seed {seed}"
    assert site.claims().prune(0) == left
    assert site.names() == []


def test_writer_that_is_not_atomic_is_found(tmp_path: Path) -> None:
    site = Site(f"file://{tmp_path}/claims")
    site.claims()
    refs, _ = kill_often(site, "put_in_place_forever", random.Random(7))
    with pytest.raises(AssertionError, match="half of"):
        check(site, refs)


def test_processes_put_the_same_content_at_once(tmp_path: Path) -> None:
    site = Site(f"file://{tmp_path}/claims")
    processes = [site.start("put_the_same", 100) for _ in range(4)]
    assert [told(process) for process in processes] == [["done"]] * 4
    assert len(site.names()) == 5
    check(site, [])


def test_file_that_may_not_grow_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    site = Site(f"file://{tmp_path}/claims")
    (tmp_path / "big").write_bytes(bytes(2_000_000))
    assert told(site.start("put_beyond_the_limit", str(tmp_path / "big"))) == [
        "database False File too large",
        "database False File too large",
        "small",
    ]
    assert len(site.names()) == 1


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_large_object_streams_in_little_memory(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    site = Site(f"file://{tmp_path}/claims")
    if place == "s3":
        site = Site("s3://bucket/large", request.getfixturevalue("s3_options"))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(100 * MIB)
    [line] = told(site.start("stream", str(large)))
    length, whole, streamed, at_once = map(int, line.split())
    assert length == whole == 100 * MIB
    assert at_once >= 100, "void: what is in memory was not seen"
    assert streamed < 50, f"100 MiB took {streamed} MiB of memory"


def test_claim_check_may_be_used_after_a_fork(site: Site) -> None:
    assert told(site.start("fork")) == ["child before after", "parent after"]
