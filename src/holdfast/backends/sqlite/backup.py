"""Online backup: a consistent copy of the file while everybody goes on writing."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from pathlib import Path

import apsw

from holdfast.backends.sqlite.connection import translate
from holdfast.backends.sqlite.files import (
    check_path,
    check_place,
    create_private,
    refusal,
    shown,
)
from holdfast.backends.sqlite.readers import OneConnection, Readers
from holdfast.errors import Conflict, StoreClosed
from holdfast.facets.backend import Progress

# A store that goes on from the copy has another future than this one. Who follows this one's
# changes by cursor, and then the copy's, must not skip what only the copy has.
_NEW_EPOCH = """
    BEGIN IMMEDIATE;
    UPDATE holdfast_epochs
    SET last_commit = (SELECT commit_id FROM holdfast_last_commit)
    WHERE last_commit IS NULL;
    INSERT INTO holdfast_epochs (epoch, first_commit)
    SELECT max(epoch) + 1, max(last_commit) + 1
    FROM holdfast_epochs;
    COMMIT;
"""


class Copier:
    """Makes the backups of one store, one at a time, and ends the one under way on `stop`."""

    def __init__(self, readers: Readers | OneConnection) -> None:
        self._readers = readers
        # Held from the first to the last page; reentrant, since `progress` may close the store.
        self._copying = threading.RLock()
        self._stopped = threading.Event()

    def copy(self, target: str, progress: Progress | None, given_up: threading.Event) -> None:
        """Copy the store to a new file, which appears only when it is complete.

        Nothing appears when `given_up` is set before that.
        """
        what = f"backup to {shown(target)}"
        exists = Conflict(f"{what}: the file exists already", path=target)
        path = Path(check_path(target, what))
        # A name of its own: another process may be making a backup of the same name.
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        try:
            if check_place(str(path), what):
                raise exists
            check_place(str(partial), what)
            create_private(str(partial))
            with self._copying:
                self._copy(partial, progress, given_up)
            self._check(given_up)
            os.link(partial, path)  # unlike a rename it never replaces what is there
            _sync_folder(path.parent)
        except FileExistsError:
            raise exists from None
        except OSError as exc:
            raise refusal(exc, what) from exc
        except apsw.Error as exc:
            raise translate(exc, target) from exc
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def stop(self) -> None:
        """Let no further backup begin, and return when none is under way."""
        self._stopped.set()
        with self._copying:
            pass

    def _copy(self, partial: Path, progress: Progress | None, given_up: threading.Event) -> None:
        with contextlib.ExitStack() as stack:
            self._check(given_up)
            source = stack.enter_context(self._readers.steady())
            copy = stack.enter_context(contextlib.closing(apsw.Connection(str(partial))))
            # Synced below, all at once: not page by page, and not while others wait for a turn.
            copy.execute("PRAGMA synchronous = OFF")
            with self._readers.turn():
                work = copy.backup("main", source.raw, "main")
            stack.callback(self._end, work)
            done = False
            while not done:
                self._check(given_up)
                with self._readers.turn():
                    done = work.step(self._readers.pages_per_turn)
                    left, total = work.remaining, work.page_count
                if progress is not None:
                    progress(total - left, total)
            self._end(work)
            copy.execute(_NEW_EPOCH)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())

    def _end(self, work: apsw.Backup) -> None:
        with self._readers.turn():
            work.close(force=True)

    def _check(self, given_up: threading.Event) -> None:
        if self._stopped.is_set() or given_up.is_set():
            raise StoreClosed("the store was closed, or the backup given up, before its end")


def _sync_folder(folder: Path) -> None:
    # The new name itself must survive a power loss too.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
