"""Names as subjects: nothing is lost, nothing is mixed up, prefixes are found."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.backends.nats.subjects import Place, from_tokens, namespace_token, to_tokens
from holdfast.runtime.blocking import run
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsServer

ODD = "".join([*string.printable, *".....*>%%% ä😀\x7f\u2003\ud7ff\U0010ffff"])
names = st.text(alphabet=ODD.replace("\0", ""), min_size=1, max_size=30)
SAFE = set(string.ascii_letters + string.digits + "_-~/=@+%.")
KEYS = [
    "a", "a.", "a..", ".a", "..", ".", "a.b", "a..b", "a.b.c", "ab", "a b", " ", "*", ">", "a.*",
    "a.>", "%", "%25", "a.%", "ä", "a.ä", "😀", "\x01", "\x7f", "\n", "A", "a\u2003", "$JS.API",
    "x" * 1024, "." * 1024, " " * 1024, "ä" * 512, "a." + "*." * 511,
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("jobs.mail.7", "jobs.mail.7"),
        ("a..b", "a.%.b"),
        (".a", "%.a"),
        ("a.", "a.%"),
        ("50 %", "50%20%25"),
        ("ä*", "%C3%A4%2A"),
    ],
)
def test_the_worked_examples_hold(name: str, tokens: str) -> None:
    assert to_tokens(name) == tokens
    assert from_tokens(tokens) == name


@given(names)
def test_every_name_comes_back_from_a_legal_subject(name: str) -> None:
    tokens = to_tokens(name)
    assert from_tokens(tokens) == name
    assert set(tokens) <= SAFE
    assert all(tokens.split("."))


@given(names, names)
def test_two_names_never_share_a_subject(one: str, other: str) -> None:
    assert (to_tokens(one) == to_tokens(other)) == (one == other)
    assert (namespace_token(one) == namespace_token(other)) == (one == other)
    assert "." not in namespace_token(one)


@given(names, st.integers(0, 30))
def test_a_prefix_is_found_by_its_filter(name: str, length: int) -> None:
    place = Place("bucket", "records", "default")
    matching = place.below(name[:length])
    assert matching.endswith(".>")
    assert place.subject(name).startswith(matching.removesuffix(">"))


def test_the_longest_names_fit_into_a_servers_control_line() -> None:
    place = Place("b" * 64, "records", " " * 1024)
    longest = max(len(place.subject(key)) for key in KEYS)
    assert longest < 4096 - len("HPUB   0000000 0000000\r\n") - 100  # where answers go


def test_odd_keys_are_kept_apart_and_in_byte_order(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        for namespace in ("default", " .*", "n" * 1024, "n" * 1023 + "m"):
            records = store.namespace(namespace).records
            for key in KEYS:
                records.put(key, {"k": f"{namespace} {key}"})
        for namespace in ("default", " .*", "n" * 1024, "n" * 1023 + "m"):
            records = store.namespace(namespace).records
            found = [(key, record.fields["k"].decode()) for key, record in records.scan()]
            wanted = sorted(KEYS, key=str.encode)
            assert found == [(key, f"{namespace} {key}") for key in wanted]
            for prefix in ("a", "a.", "a..", ".", "..", " ", "*", "ä", "x" * 1000):
                wanted = sorted((key for key in KEYS if key.startswith(prefix)), key=str.encode)
                assert [key for key, _ in records.scan(prefix)] == wanted, prefix


def test_odd_keys_are_watched(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store, store.records.watch() as watch:
        assert watch.next(10) is holdfast.CAUGHT_UP
        for key in KEYS:
            store.records.put(key, {"x": 1})
        told = [watch.next(10) for _ in KEYS]
        assert [change.key for change in told if isinstance(change, holdfast.RecordChange)] == KEYS


def test_a_scan_does_not_go_on_with_the_names_of_an_older_one(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.nats.names._WINDOW", 4)

    def page(store: Store, after: str | None) -> list[str]:
        found, _ = run(
            store._backend.records.page(  # noqa: SLF001 - a scan that its reader leaves half way
                "default", prefix="", after=after, limit=2, fields=None
            )
        )
        return [one.key for one in found]

    with holdfast.open(server.fresh_url()) as store:
        for number in range(8):
            store.records.put(f"k{number}", {"x": 1})
        assert [page(store, after) for after in (None, "k1", "k3")] == [
            ["k0", "k1"], ["k2", "k3"], ["k4", "k5"],
        ]  # fmt: skip
        for key in ("a0", "a1", "k5.new"):  # now another window ends where that page did
            store.records.put(key, {"x": 1})
        assert [page(store, after) for after in (None, "a1", "k1", "k3", "k5")] == [
            ["a0", "a1"], ["k0", "k1"], ["k2", "k3"], ["k4", "k5"], ["k5.new", "k6"],
        ]  # fmt: skip
