"""Folders that are still there after power loss."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MODE = 0o700


def make_folder(folder: Path) -> None:
    """Create the folder and what is missing above it, and make that durable.

    The folder above is synced also when nothing was missing: who created the folder may
    have died before its own sync.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(_MODE, exist_ok=True)
    with contextlib.suppress(PermissionError):  # of a parent that we may not read
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
