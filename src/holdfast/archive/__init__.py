"""Archives: folders of messages, a gzipped file of JSON lines for each day.

    2026-11-16.0.jsonl.gz        messages of that day (UTC), by the first writer
    2026-11-16.1.jsonl.gz        by a second one that ran at the same time

    {"message_id":"…","subject":"…","timestamp":"2026-11-16T…Z","trace_id":null,"payload":…}

What is added at once is one gzip member, synced before anybody hears of it; a file of several
members is a gzip file like any other. A writer holds a lock on each file that it writes to, so a
file has one writer. The next writer takes over what a dead one left: whole members stay, and
half a member at the end, of which nobody has heard, is cut off.
"""

from holdfast.archive.folder import ArchiveFolder
from holdfast.archive.reading import read_archive

__all__ = ["ArchiveFolder", "read_archive"]
