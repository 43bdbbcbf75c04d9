"""A writer begins with what it left, and finds out when somebody else has written since."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

import holdfast
from holdfast import Store
from holdfast.backends.nats.connection import Connection
from holdfast.testing.nats import NatsServer

PATIENCE = 30.0


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects of all that is asked of the server, as it is asked."""
    asked: list[str] = []
    ask = Connection.ask

    async def noting(self: Connection, subject: str, *args: object, **options: object) -> object:
        asked.append(subject)
        return await ask(self, subject, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "ask", noting)
    return asked


def test_a_record_written_again_by_the_same_store_takes_one_question(
    store: Store, questions: list[str]
) -> None:
    store.records.put("a", {"x": 1})
    for write in (
        lambda: store.records.put("a", {"x": 2, "y": 1}),
        lambda: store.records.set_field("a", "x", 3),
        lambda: store.records.compare_and_swap("a", "x", 3, 4),
    ):
        questions.clear()
        write()
        assert len(questions) == 1
    assert _found(store) == {"x": b"4", "y": b"1"}


def test_what_another_store_wrote_meanwhile_is_built_on(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.records.put("a", {"x": 1})
        theirs.records.put("a", {"x": 2, "z": 1})
        ours.records.set_field("a", "y", 3)
        assert _found(ours) == {"x": b"2", "y": b"3", "z": b"1"}
        theirs.records.set_field("a", "x", 5)
        assert not ours.records.compare_and_swap("a", "x", 2, 9)
        assert ours.records.compare_and_swap("a", "x", 5, 6)
        theirs.records.delete("a")
        assert not ours.records.compare_and_swap("a", "x", 6, 7)
        assert ours.records.get("a") is None


def test_a_refusal_is_never_from_memory(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.records.put("a", {"x": 1})
        theirs.records.put("a", {"x": 2})
        assert ours.records.compare_and_swap("a", "x", 2, 3)


def test_an_expired_records_operation_is_known_until_the_server_removes_it(store: Store) -> None:
    op = uuid4()
    began = time.monotonic()
    store.records.put("a", {"x": 1}, ttl=0.05, op_id=op)
    _until(lambda: store.records.get("a") is None)

    def written_anew() -> bool:
        store.records.put("a", {"x": 1}, op_id=op)
        return store.records.get("a") is not None

    _until(written_anew)
    assert time.monotonic() - began > 1  # which the server keeps it for, to be on the safe side


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _found(store: Store) -> dict[str, bytes]:
    record = store.records.get("a")
    assert record is not None
    return dict(record.fields)
