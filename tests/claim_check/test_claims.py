"""What a claim check promises, on a folder, in memory and on S3, in both colours."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast import Corrupt, InvalidArgument, NotFound
from tests.claim_check.sites import Claims, Site, blocks_of

ABC = "claim:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:3"
DIGEST = ABC.split(":")[2]
NINE_MB = os.urandom(9 << 20)  # above what a bucket gets in one piece


def test_what_was_put_is_what_is_got(claims: Claims, site: Site) -> None:
    ref = claims.put(b"abc")
    assert ref == ABC
    assert claims.get(ref) == b"abc"
    assert blocks_of(claims, ref) == [b"abc"]
    assert claims.exists(ref)
    assert site.names() == [DIGEST]


@pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)) * 40, NINE_MB])
def test_every_content_comes_back(claims: Claims, site: Site, data: bytes) -> None:
    ref = claims.put(data)
    assert ref == f"claim:sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"
    assert claims.get(ref) == data
    assert b"".join(blocks_of(claims, ref)) == data
    assert claims.put_file(io.BytesIO(data)) == ref
    assert claims.get(ref) == data
    assert site.names() == [ref.split(":")[2]]


def test_same_content_is_one_object(claims: Claims, site: Site) -> None:
    assert claims.put(b"abc") == claims.put(bytearray(b"abc")) == claims.put(memoryview(b"abc"))
    claims.put(b"other")
    assert len(site.names()) == 2


def test_file_is_stored_by_its_path_or_from_where_it_stands(claims: Claims, tmp_path: Path) -> None:
    path = tmp_path / "payload.bin"
    path.write_bytes(b"xyabc")
    assert claims.get(claims.put_file(path)) == b"xyabc"
    assert claims.get(claims.put_file(str(path))) == b"xyabc"
    with path.open("rb") as file:
        file.seek(2)
        assert claims.put_file(file) == ABC
        assert not file.closed
    assert claims.get(ABC) == b"abc"


def test_reference_survives_a_record(claims: Claims) -> None:
    with holdfast.open("sqlite://:memory:") as store:
        store.records.put("jobs.7", {"params_ref": claims.put(b"abc")})
        record = store.records.get("jobs.7")
        assert record is not None
        ref = record.fields["params_ref"]
    assert ref == ABC.encode()
    assert claims.get(ref) == b"abc"
    assert claims.exists(ref)
    assert claims.delete(ref)


def test_object_that_is_gone_is_not_found(claims: Claims) -> None:
    with pytest.raises(NotFound, match=DIGEST):
        claims.get(ABC)
    with pytest.raises(NotFound, match=DIGEST):
        blocks_of(claims, ABC)
    assert not claims.exists(ABC)
    assert claims.delete(ABC) is False
    claims.put(b"abc")
    assert claims.delete(ABC) is True
    assert claims.delete(ABC) is False
    assert not claims.exists(ABC)


@pytest.mark.parametrize("content", [b"", b"abd", b"ab", b"abcd"])
def test_tampered_object_is_corrupt_and_a_put_mends_it(
    claims: Claims, site: Site, content: bytes
) -> None:
    claims.put(b"abc")
    site.write(DIGEST, content)
    with pytest.raises(Corrupt, match=DIGEST):
        claims.get(ABC)
    with pytest.raises(Corrupt, match=DIGEST):
        blocks_of(claims, ABC)
    assert claims.exists(ABC) is (len(content) == 3)
    claims.put(b"abc")
    assert claims.get(ABC) == b"abc"


def test_last_block_of_a_tampered_object_is_not_handed_out(site: Site) -> None:
    claims = site.claims()
    ref = claims.put(NINE_MB)
    site.write(ref.split(":")[2], bytes([NINE_MB[0] ^ 1]) + NINE_MB[1:])
    with claims.open(ref) as file:
        assert len(file.read(1 << 20)) == 1 << 20
        with pytest.raises(Corrupt):
            file.read()


def test_reference_with_another_length_is_corrupt(claims: Claims) -> None:
    claims.put(b"abc")
    with pytest.raises(Corrupt, match="found 3 bytes"):
        claims.get(ABC[:-1] + "4")


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "abc",
        "s3://bucket/key",
        DIGEST,
        ABC + " ",
        ABC + "\n",
        ABC[:-1],
        ABC[:-1] + "03",
        ABC[:-1] + "-3",
        ABC[:-1] + "٣",
        ABC.upper(),
        ABC.replace("sha256", "md5"),
        f"claim:sha256:../{DIGEST[3:]}:3",
        "claim:sha256:../../../../etc/passwd:3",
        "x" * 10_000,
        b"\xff\xfe",
        None,
        7,
        Path("abc"),
    ],
)
def test_anything_but_a_reference_is_refused(site: Site, ref: str) -> None:
    claims = site.claims()
    calls: list[Callable[[str], object]] = [claims.get, claims.open, claims.exists, claims.delete]
    for call in calls:
        with pytest.raises(InvalidArgument, match="claim check: wanted a reference"):
            call(ref)


@pytest.mark.parametrize("data", ["text", None, 7, [1, 2], {"a": 1}])
def test_only_bytes_are_put(claims: Claims, site: Site, data: bytes) -> None:
    with pytest.raises(InvalidArgument, match=f"wanted bytes, found {type(data).__name__}"):
        claims.put(data)
    assert site.names() == []


@pytest.mark.parametrize("source", [None, 7, b"abc"])
def test_only_paths_and_files_are_put_as_files(claims: Claims, site: Site, source: str) -> None:
    with pytest.raises(InvalidArgument, match="wanted a path or an open file"):
        claims.put_file(source)
    assert site.names() == []


def test_text_file_is_refused(claims: Claims, site: Site) -> None:
    with pytest.raises(InvalidArgument, match="wanted bytes, found str"):
        claims.put_file(io.StringIO("abc"))  # type: ignore[arg-type]
    assert site.names() == []


def test_source_that_cannot_be_read_stores_nothing(
    claims: Claims, site: Site, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match=r"missing\.bin"):
        claims.put_file(tmp_path / "missing.bin")
    with pytest.raises(InvalidArgument, match=r"[Dd]irectory"):
        claims.put_file(tmp_path)
    with pytest.raises(holdfast.Database, match="the line is cut"):
        claims.put_file(Breaking(OSError("the line is cut")))
    with pytest.raises(ZeroDivisionError):  # the caller's own
        claims.put_file(Breaking(ZeroDivisionError()))
    assert site.names() == []


class Breaking(io.RawIOBase):
    """A file that gives a block and then fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._outcomes: list[bytes | Exception] = [b"x" * 100, error]

    def read(self, size: int = -1, /) -> bytes:
        del size
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_threads_put_the_same_content_at_once(site: Site) -> None:
    claims = site.claims()
    contents = [bytes([n]) * (n + 1) for n in range(4)] * 25
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(claims.put, contents))
        assert list(pool.map(claims.get, refs)) == contents
    assert len(site.names()) == 4


def test_readers_of_one_object_do_not_disturb_each_other(site: Site) -> None:
    claims = site.claims()
    ref = claims.put(b"0123456789")
    with claims.open(ref) as first, claims.open(ref) as second:
        read = [first.read(3), second.read(5), first.read(), second.read()]
    assert read == [b"012", b"01234", b"3456789", b"56789"]


def test_stream_reads_like_a_file(site: Site) -> None:
    claims = site.claims()
    with claims.open(claims.put(b"one\ntwo\n")) as file:
        assert file.readline() == b"one\n"
        assert list(file) == [b"two\n"]
        assert file.read() == b""
        assert not file.seekable()
    assert file.closed


# Age


def test_prune_removes_what_nobody_has_put_lately(claims: Claims, site: Site) -> None:
    claims.put(b"abc")
    claims.put(b"other")
    site.write(f".{'0' * 32}.partial", b"half")
    site.write("somebody-elses", b"data")
    assert claims.prune(3600) == 0
    assert len(site.names()) == 4
    assert claims.prune(0) == 3
    assert site.names() == ["somebody-elses"]
    assert claims.prune(0) == 0


@pytest.mark.parametrize("older_than", [-1, "1d", None, float("nan"), True])
def test_prune_wants_a_duration(site: Site, older_than: float) -> None:
    with pytest.raises(InvalidArgument, match="older_than"):
        site.claims().prune(older_than)


def test_objects_may_move(tmp_path: Path) -> None:
    ref = holdfast.ClaimCheck(tmp_path / "here").put(b"abc")
    (tmp_path / "here").rename(tmp_path / "there")
    assert holdfast.ClaimCheck(tmp_path / "there").get(ref) == b"abc"
