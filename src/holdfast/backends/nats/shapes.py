"""What the streams of a store are for, and what each is told when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.clock import to_us

MARKER_SECS = 25 * 3600
"""For how long a deletion stays in the log: a day, and an hour to be on the safe side."""


class Shape(NamedTuple):
    """What a stream of the store is for."""

    name: str
    description: str
    kinds: tuple[str, ...]  # what the subjects in it begin with
    settings: Mapping[str, Any]

    def subjects(self, root: str) -> list[str]:
        """All that the stream takes."""
        return [f"{root}.{kind}" for kind in self.kinds]

    def config(self, root: str, replicas: int, *, atomic: bool) -> dict[str, Any]:
        """The stream as it is made."""
        config: dict[str, Any] = {
            "name": f"{root}_{self.name}",
            "description": self.description,
            "subjects": self.subjects(root),
            "retention": "limits",
            "storage": "file",
            "num_replicas": replicas,
            "discard": "new",  # a full stream refuses, it does not forget
            "allow_direct": True,
            "allow_msg_ttl": True,
            **self.settings,
        }
        if atomic:
            config["allow_atomic"] = True
        return config


STATE = Shape(
    "state",
    "Holdfast: the newest value of each record, cell, group and view of a run",
    (
        "namespaces.*",
        "records.>",
        "cells.>",
        "clock",
        "groups.>",
        "operations.>",
        "returned.>",
        "deliveries.>",
        "views.>",
    ),
    {"max_msgs_per_subject": 1, "subject_delete_marker_ttl": MARKER_SECS * 1_000_000_000},
)


class Info(NamedTuple):
    """The stream as it is now."""

    last_seq: int
    created: int  # in microseconds, as the next
    now_us: int  # by the server's clock
    subjects: Mapping[str, int]
    total: int
    limit: int


def info_of(found: Mapping[str, Any]) -> Info:
    """What the leader tells of the stream."""
    state = found["state"]
    return Info(
        state["last_seq"],
        _us(found["created"]),
        _us(found["ts"]),
        state.get("subjects") or {},
        found.get("total", 0),
        found.get("limit", 0),
    )


def _us(text: str) -> int:
    """An instant as NATS writes it, with nanoseconds, in microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    instant = datetime.fromisoformat(f"{whole}+00:00")
    return to_us(instant) + int(fraction[:6].ljust(6, "0"))
