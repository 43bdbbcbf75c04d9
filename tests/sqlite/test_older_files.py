"""A file of an older schema keeps what is in it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.backends.sql import migrate as history
from holdfast.backends.sqlite import migrate

BEFORE_PACKED = 6
BEFORE_IDS_IN_ORDER = 7


def _older(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as it was before fields were packed, with what it wrote."""
    with monkeypatch.context() as then:
        known = history.load_migrations("holdfast.backends.sqlite")[:BEFORE_PACKED]
        then.setattr(migrate, "load_migrations", lambda _: known)
        with holdfast.open(f"sqlite:///{path}") as store:
            store.cells.set("c", 1)
    raw = apsw.Connection(str(path))
    raw.execute(
        "INSERT INTO holdfast_records (namespace, key, fields, updated_at, commit_id, op_id) VALUES"
        """('default', 'a', '{"state":"new","raw":"\\u0001/w=="}', 1, 10, x'00'),"""
        """('default', 'b', '{"state":"old"}', 1, 11, x'00')"""
    )
    raw.execute("INSERT INTO holdfast_record_changes VALUES (10, 1, 1), (11, 2, 1)")
    raw.close()


def test_records_from_before_they_were_packed_are_read_and_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    _older(path, monkeypatch)
    with holdfast.open(f"sqlite:///{path}") as store:
        first = store.records.get("a")
        assert first is not None
        assert first.fields == {"state": b"new", "raw": b"\xff"}
        assert store.records.compare_and_swap("b", "state", "old", "new")
        store.records.create_index("", "state")
        new = holdfast.ScanFilter("state", "eq", "new")
        assert [key for key, _ in store.records.scan(filters=new)] == ["a", "b"]
        store.records.set_field("a", "state", "done")
        assert [key for key, _ in store.records.scan(filters=new)] == ["b"]
        assert store.cells.get("c") == 1
        with store.records.watch() as watch:
            told = [next(watch) for _ in range(2)]
        assert [one.key for one in told if isinstance(one, holdfast.RecordChange)] == ["a", "b"]


def test_events_from_before_their_ids_were_in_order_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, event_id = tmp_path / "x.db", "01890a5d-ac96-774b-bcce-b302099a8057"
    with monkeypatch.context() as then:
        known = history.load_migrations("holdfast.backends.sqlite")[:BEFORE_IDS_IN_ORDER]
        then.setattr(migrate, "load_migrations", lambda _: known)
        with holdfast.open(f"sqlite:///{path}") as store:
            store.events.append_event(holdfast.Event("r", "Noted", "1", event_id=event_id))
    with holdfast.open(f"sqlite:///{path}") as store:
        with pytest.raises(holdfast.Conflict, match=event_id):
            store.events.append_event(holdfast.Event("r", "Noted", "2", event_id=event_id))
        other = holdfast.Event("other", "Noted", "2", event_id=event_id)
        assert store.events.append_event(other).run_seq == 1
        assert [one.event_id for one in store.events.fetch_events("r")] == [event_id]
