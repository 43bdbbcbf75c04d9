"""Files of runs: what a failing disk leaves, and how much memory they take."""

import errno
import io
import os
import tracemalloc
from pathlib import Path

import pytest

import holdfast
from holdfast import Event, StoreError

KIB = 1024
EVENTS = 500


@pytest.mark.parametrize("failing", ["fsync", "open", "replace"])
def test_a_disk_that_fails_costs_no_event_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    folder = tmp_path / "archive"

    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with holdfast.open("sqlite://:memory:") as store:
        store.events.append_event(Event("r", "RunCompleted", "end"))
        if failing == "replace":
            monkeypatch.setattr(Path, "replace", fails)
        else:
            monkeypatch.setattr(os, failing, fails)
        with pytest.raises(StoreError, match="No space left") as caught:
            store.events.archive_run("r", folder)
        assert caught.value.retryable
        monkeypatch.undo()
        assert store.events.list_runs() == ["r"]
        assert list(folder.glob("*")) == []
        assert list(folder.glob(".*")) == []
        path = store.events.archive_run("r", folder)
        assert store.events.list_runs() == []
        assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_file_that_takes_little_at_a_time_gets_everything() -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.content += bytes(data[:7])
            return min(len(data), 7)

    with holdfast.open("sqlite://:memory:") as store:
        store.events.append_events([Event("r", "Noted", f"{n}") for n in range(20)])
        slow, whole = Slow(), io.BytesIO()
        store.events.export_runs(slow)  # type: ignore[arg-type]
        store.events.export_runs(whole)
        assert slow.content == whole.getvalue()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """16 MB, of which a page of 4 is in memory, in some forms at once."""
    path = tmp_path / "runs.jsonl"
    with holdfast.open("sqlite://:memory:") as store, holdfast.open("sqlite://:memory:") as other:
        for start in range(0, EVENTS, 100):
            batch = [
                Event("long", "Noted", f"{n}", "x" * 32 * KIB) for n in range(start, start + 100)
            ]
            store.events.append_events(batch)
        tracemalloc.start()
        try:
            assert store.events.export_runs(path).events == EVENTS
            assert other.events.import_runs(path).events == EVENTS
            assert other.events.import_runs(path).known == EVENTS
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert path.stat().st_size > EVENTS * 32 * KIB
    assert peak < 10_000 * KIB, f"{peak} bytes"
