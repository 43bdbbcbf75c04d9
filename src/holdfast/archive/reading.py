"""Reading an archive: the messages of its files, each once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path

from holdfast.archive.failures import translated
from holdfast.archive.folder import FILE_NAME
from holdfast.archive.members import Members, unpack
from holdfast.errors import Corrupt
from holdfast.facets.transport import Message


def read_archive(folder: str | os.PathLike[str], day: date | None = None) -> Iterator[Message]:
    """The messages in the folder, or those of one day (UTC): day by day, each message once.

    A message may be in the files twice, after a crash or when it was delivered twice. Half a
    batch at a file's end, of a writer that died or is just writing, is passed over. A file that
    is damaged in another way raises Corrupt once what is before the damage has been given.
    """
    wanted = None if day is None else day.isoformat()
    with translated(f"archive {os.fspath(folder)!r}"):
        names = [path.name for path in Path(folder).iterdir()]
    matches = [match for name in names if (match := FILE_NAME.fullmatch(name))]
    known: set[tuple[str, datetime]] = set()
    last = None
    for found, _, name in sorted((match[1], int(match[2]), match[0]) for match in matches):
        if wanted is not None and found != wanted:
            continue
        if found != last:  # a message's day is always the same
            known.clear()
            last = found
        for message in _read_file(Path(folder, name)):
            place = message.message_id, message.timestamp
            if place not in known:
                known.add(place)
                yield message


def _read_file(path: Path) -> Iterator[Message]:
    what = f"archive file {str(path)!r}"
    with translated(what), path.open("rb") as file:
        members = Members(file)
        for member in members:
            yield from unpack(member, what)
        if members.damaged:
            raise Corrupt(f"{what}: damaged at byte {members.length}")
