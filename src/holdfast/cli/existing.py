"""Opening a store that is there, for commands that only work on what it has."""

from __future__ import annotations

import os

from holdfast.config import StoreConfig
from holdfast.errors import Unavailable
from holdfast.opening import open as open_store
from holdfast.sync.store import Store
from holdfast.url import MEMORY, parse


def open_existing(url: str, namespace: str) -> Store:
    """The open store; Unavailable when it is a SQLite file that does not exist.

    To open one creates it, and who has mistyped its name would then hear that it is empty.
    """
    target = parse(url, StoreConfig())
    if target.engine == "sqlite" and target.address != MEMORY:
        try:
            os.stat(target.address)  # noqa: PTH116 - a path's `exists` hides why it cannot tell
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise Unavailable(f"SQLite file {target.address!r}: does not exist") from exc
        except OSError:
            pass  # to open it says what is wrong
    return open_store(url, namespace)
