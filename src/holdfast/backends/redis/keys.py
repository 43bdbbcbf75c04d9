"""The keys of a store, all below its prefix (`?prefix=`, here `hf`).

Everything of a namespace has the same hash tag, so Redis Cluster keeps a namespace on one node
and a script may use all of it. Scripts get the base, `hf:{default}`, and add the rest:

    hf:{default}:r:KEY       hash    a record: one field named NUL with what is ours, and its own,
                                     unless they are packed behind that
    hf:{default}:keys        zset    the keys of records, all at score 0: byte order, for scans
    hf:{default}:log         hash    n -> number of the last change, with a ! if there are indexes
                                     or the clock was moved;
                                     number modulo 4,000 -> OP_ID KEY of that change
    hf:{default}:changes     zset    key -> number of its newest change: the log, compacted
    hf:{default}:lost        string  the highest number that is no longer in the log
    hf:{default}:due         zset    key -> instant at which something of it is to be removed
    hf:{default}:indexes     hash    index -> where filling it is, or `complete`
    hf:{default}:x:INDEX     zset    its entries, in byte order
    hf:{default}:e:INDEX     hash    key -> its entry
    hf:{default}:c:NAME      hash    a cell: v(ersion), p(ayload), t(ime), i(d of its commit)
    hf:{default}:o:NAME      list    the operation ids of the cell's last writes, newest first
    hf:{default}:cells       zset    the names of cells that are there
    hf:{default}:commit      string  the last commit id
    hf:{default}:messages    stream  N-0 -> message: i(d), s(ubject), t(ime), p(ayload), c: trace id
    hf:{default}:sent        string  the last N: its time in µs, or one more than the one before
    hf:{default}:m:ID        string  when a message with the id was published; for two minutes
    hf:{default}:groups      zset    the names of groups
    hf:{default}:g:GROUP     hash    subjects, timeout, most (deliveries), position: the N it is at,
                                     op: what tells it from others that have had its name
    hf:{default}:d:GROUP     zset    N, in 16 digits -> instant at which it is delivered again
    hf:{default}:n:GROUP     hash    N -> NUMBER:CONSUMER of its last delivery; dead: NUMBER:DIED_AT
    hf:{default}:l:GROUP     zset    N of the dead letters
    hf:{default}:done:OP     string  what an operation on groups or dead letters answered: 1 or 0;
                                     for a day if the caller named it, else for ten minutes
    hf:{default}:h:RUN       hash    a run: n(umber of its last event), g(eneration); of each VIEW
                                     sVIEW: up to which event it is, pVIEW: what it is
    hf:{default}:k:RUN       hash    k KEY and i EVENT_ID -> the number of the event that has it
    hf:{default}:v:RUN       hash    number -> event; once the run is deleted, w:GENERATION
    hf:{default}:runs        zset    the run ids
    hf:{default}:events      stream  N-0 -> r(un), s: the number of the event in it: the feed
    hf:{default}:fed         string  the last N: its time in µs, or one more than the one before
    hf:{default}:gone        hash    generation of a deleted run -> how many events are left
    hf:clock                 string  the clock's offset in microseconds (cluster: per namespace)
    hf:namespaces            set     the namespaces that somebody wrote to

A worked example. `put("job.7", {"state": "pending"}, ttl=60)` as the third change leaves

    hf:{default}:r:job.7     NUL = OP_ID expires_at;0;updated_at;3;{"state": b"pending"}
    hf:{default}:keys        job.7
    hf:{default}:log         n = 3, 3 = OP_ID job.7
    hf:{default}:changes     job.7 -> 3
    hf:{default}:due         job.7 -> expires_at

and the server itself removes the hash when its time is up (PEXPIREAT). `delete` leaves a hash
with NUL alone for a day, so that a repeat is known, and takes the key out of `keys`; `changes`
then has job.7 -> 4, which tells a watch to look, find nothing, and say so.

A put leaves its fields packed, a map in MessagePack, if they are small: in a batch one value costs
the server half of what a dozen do. Whoever else writes to the record spreads them first, so that a
field can be set without touching the others. `set_field("job.7", "tries", 1)` as the fourth change
leaves

    hf:{default}:r:job.7     state = pending, tries = 1, NUL = OP_ID expires_at;;updated_at;4

The 0 is how many fields the hash has besides, which is known of a put. An older version wrote
OP_ID updated_at:expires_at:3, and kept 3 in hf:{default}:number.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from holdfast.facets.names import prefix_end
from holdfast.facets.records import RecordIndex

META = b"\0"
"""The field of a record with what is ours: no user's field can have the name."""

# A NUL is in no name, so it can stand between them.
_SEPARATOR = "\0"


class Keys:
    """Makes the keys of one store."""

    def __init__(self, prefix: str, *, cluster: bool) -> None:
        self._prefix = prefix
        self._clock = None if cluster else f"{prefix}:clock".encode()
        self.namespaces = f"{prefix}:namespaces".encode()
        self.channel = f"{prefix}:changes".encode()
        self.read_clock: list[list[bytes]] = [[b"TIME"]]
        """The commands whose answers add up to the store's clock."""
        if self._clock is not None:
            self.read_clock.append([b"GET", self._clock])

    def base(self, namespace: str) -> bytes:
        """With which all keys of the namespace begin."""
        return _base(self._prefix, namespace)

    def clock(self, base: bytes) -> bytes:
        """Where scripts of the namespace find the clock's offset.

        A script of a cluster sees its own hash slot only, so there the clock cannot be moved.
        """
        return self._clock or base + b":clock"


@lru_cache(maxsize=1000)
def _base(prefix: str, namespace: str) -> bytes:
    # A } would end the hash tag, a : could make the keys of two namespaces the same.
    return f"{prefix}:{{{quote(namespace, safe='')}}}".encode()


def lex_range(prefix: str, after: str | None) -> tuple[bytes, bytes]:
    """The bounds, as ZRANGEBYLEX takes them, of the names with the prefix above `after`."""
    low = f"[{prefix}" if prefix else "-"
    if after is not None and after >= prefix:
        low = f"({after}"
    high = f"({prefix_end(prefix)}" if prefix else "+"
    return low.encode(), high.encode()


def index_name(index: RecordIndex) -> bytes:
    """The index as its keys name it: its prefix, then its fields."""
    return _SEPARATOR.join((index.prefix, *index.fields)).encode()


def index_named(name: bytes) -> RecordIndex:
    """The index that has that name."""
    prefix, *fields = name.decode().split(_SEPARATOR)
    return RecordIndex(prefix, tuple(fields))
