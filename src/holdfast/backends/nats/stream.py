"""The store's stream: reads, writes under a condition, the log, the list of subjects.

With one replica, reads go to the only server that has the stream, in batches where it helps.
With several, a single read goes to the leader. Batches are answered by any replica, which may
be behind: an answer that ends below what this store has seen is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from nats.aio.msg import Msg

from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.entries import Entry, Message, entry_of, headers_of, kept_entry
from holdfast.backends.nats.errors import NoMessage
from holdfast.backends.nats.questions import PAUSE, Questions
from holdfast.backends.nats.shapes import STATE, Info, Shape, info_of
from holdfast.clock import to_datetime
from holdfast.config import StoreConfig
from holdfast.errors import InvalidState, NotFound, Unsupported

_OLDEST_SERVER = (2, 11)  # with a time to live for each message, and reads in batches
_ATOMIC_SERVER = (2, 12)
MOST_ATOMIC = 1000
"""Messages that one atomic batch holds: the server's limit."""

_MOST_ASKED = 256  # subjects in one question
_AROUND = 200  # bytes of a question beside its subjects
_PAGE_BYTES = 8 * 1024 * 1024
_LIST_OVERLAP = 1000  # subjects that go meanwhile move the pages of a list
_LEFT = "Nats-Num-Pending"


class Stream:
    """Every call takes a deadline by the loop's clock, and raises typed errors after it."""

    def __init__(self, connection: Connection, config: StoreConfig, shape: Shape = STATE) -> None:
        self.root = config.bucket
        self.name = f"{config.bucket}_{shape.name}"
        self._shape = shape
        self.clock = f"{config.bucket}.clock"
        self._config = config
        self._connection = connection
        self.questions = Questions(connection, config, self.name)
        self.where = self.questions.where
        self.deadline = self.questions.deadline
        self.patience = self.questions.patience
        self.ready = connection.ready
        self.replicas = config.replicas
        self._kept: frozenset[str] = frozenset()  # the subjects that the stream takes
        self.atomic = False
        self.seen = 0
        """The highest sequence number that this store knows of."""

    @property
    def room(self) -> int:
        """The largest message that the server takes, in bytes."""
        return self._connection.max_payload

    async def prepare(self, *, create: bool) -> None:
        """Find the stream, or make it."""
        version = self._connection.version
        if version < _OLDEST_SERVER:
            raise Unsupported(
                f"{self.where}: the server is NATS {'.'.join(map(str, version))}, "
                f"wanted {'.'.join(map(str, _OLDEST_SERVER))} or newer"
            )
        deadline = self.deadline()
        while not self.questions.found:
            try:
                await self.info(deadline)
            except NotFound:
                if not create:
                    raise InvalidState(
                        f"{self.where}: there is none, and migrate=False forbids to make it"
                    ) from None
                if self.patience(deadline) <= 0:
                    raise
                atomic = version >= _ATOMIC_SERVER
                config = self._shape.config(self.root, self._config.replicas, atomic=atomic)
                await self.questions.api(f"STREAM.CREATE.{self.name}", config, deadline)
            else:
                self.questions.found = True
        if not self._kept.issuperset(self._shape.subjects(self.root)):
            await self._widen(deadline, create=create)

    async def info(self, deadline: float, subjects: str | None = None, offset: int = 0) -> Info:
        """The stream as its leader knows it, with the subjects that match the filter."""
        asked = {"subjects_filter": subjects, "offset": offset} if subjects else {}
        found = await self.questions.api(
            f"STREAM.INFO.{self.name}", asked, deadline, long=bool(subjects)
        )
        config, state = found["config"], found["state"]
        self._kept = frozenset(config["subjects"])
        self.replicas = config["num_replicas"]
        self.atomic = bool(config.get("allow_atomic"))
        self.seen = max(self.seen, state["last_seq"])
        return info_of(found)

    async def subjects(self, matching: str) -> AsyncIterator[Info]:
        """The stream with all subjects that match the filter, in pages, some of them twice.

        Each page may take as long as a call: the server tells 100,000 at a time.
        """
        offset = 0
        while True:
            info = await self.info(self.deadline(), matching, offset)
            yield info
            if offset + info.limit >= info.total:
                return
            offset += info.limit - _LIST_OVERLAP

    async def get(self, subject: str, deadline: float) -> Entry | None:
        """The subject's newest message."""
        return await self._one({"last_by_subj": subject}, deadline)

    async def at(self, seq: int, deadline: float) -> Entry | None:
        """The message with that sequence number."""
        return await self._one({"seq": seq}, deadline)

    async def next(self, matching: str, after: int, deadline: float) -> Entry | None:
        """The next message above the sequence number; unlike `log` never from who is behind."""
        return await self._one({"seq": after + 1, "next_by_subj": matching}, deadline)

    async def get_pages(
        self, subjects: Sequence[str], deadline: float
    ) -> AsyncIterator[tuple[Sequence[str], dict[str, Entry]]]:
        """The subjects, some at a time, with the newest message of each that has one.

        Large values come few at a time: a page has 8 MiB, or is one message.
        """
        begin, count = 0, _MOST_ASKED
        while begin < len(subjects):
            page = self._fitting(subjects[begin : begin + count])
            entries, complete = await self._newest(page, deadline)
            if complete:
                yield page, entries
                begin += len(page)
                count = min(2 * len(page), _MOST_ASKED)
            else:
                count = max(1, len(page) // 2)

    async def get_many(self, subjects: Sequence[str], deadline: float) -> dict[str, Entry]:
        """The newest message of each subject that has one."""
        found: dict[str, Entry] = {}
        async for _, entries in self.get_pages(subjects, deadline):
            found |= entries
        return found

    async def log(
        self, matching: str, after: int, limit: int, deadline: float
    ) -> tuple[list[Entry], int]:
        """The next messages above the sequence number, and how many more there are."""
        question = {
            "seq": after + 1,
            "next_by_subj": matching,
            "batch": limit,
            "max_bytes": _PAGE_BYTES,
        }
        messages, end = await self.questions.direct_batch(question, deadline)
        return list(map(entry_of, messages)), int(end.get(_LEFT, 0))

    async def first_since(self, since_us: int, deadline: float) -> int | None:
        """The sequence number of the oldest message from that instant on, by the server's clock."""
        since = to_datetime(since_us).isoformat()
        question = {"start_time": since, "next_by_subj": f"{self.root}.>", "batch": 1}
        messages, _ = await self.questions.direct_batch(question, deadline)
        return entry_of(messages[0]).seq if messages else None

    async def publish(self, message: Message, patience: float) -> int:
        """The new sequence number; raises WrongSequence, NotSent or NoAnswer as well."""
        answer = await self._connection.ask(
            message.subject, message.data, headers=headers_of(message), patience=patience
        )
        return self._acknowledged(answer)

    async def publish_all(self, messages: Sequence[Message], patience: float) -> list[int]:
        """All of them or none, in one step of the log; raises what `publish` does."""
        batch = uuid4().hex
        *firsts, last = (
            (
                message,
                headers_of(message) | {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(at)},
            )
            for at, message in enumerate(messages, 1)
        )
        for message, headers in firsts:
            await self._connection.tell(message.subject, message.data, headers)
        message, headers = last
        answer = await self._connection.ask(
            message.subject,
            message.data,
            headers=headers | {"Nats-Batch-Commit": "1"},
            patience=patience,
        )
        newest = self._acknowledged(answer)
        return list(range(newest - len(messages) + 1, newest + 1))

    async def remove(self, seq: int, deadline: float) -> bool:
        """True if that very message was there: it is gone, and leaves no marker."""
        question = {"seq": seq, "no_erase": True}
        try:
            await self.questions.api(f"STREAM.MSG.DELETE.{self.name}", question, deadline)
        except NoMessage:
            return False
        return True

    async def purge(self, matching: str, below: int | None, deadline: float) -> None:
        """Remove what matches, with a smaller sequence number than that if there is one."""
        question = {"filter": matching} if below is None else {"filter": matching, "seq": below}
        await self.questions.api(f"STREAM.PURGE.{self.name}", question, deadline, long=True)

    async def follow(self, consumer: Mapping[str, Any], deadline: float) -> None:
        """Make the consumer, unless there is one of its name."""
        question = {"stream_name": self.name, "config": consumer}
        await self.questions.api(
            f"CONSUMER.CREATE.{self.name}.{consumer['name']}", question, deadline
        )

    async def unfollow(self, name: str, deadline: float) -> None:
        """Drop the consumer."""
        await self.questions.api(f"CONSUMER.DELETE.{self.name}.{name}", {}, deadline)

    async def _one(self, question: Mapping[str, Any], deadline: float) -> Entry | None:
        if self.replicas == 1:
            message = await self.questions.direct(question, deadline)
            return None if message is None else entry_of(message)
        try:
            found = await self.questions.api(f"STREAM.MSG.GET.{self.name}", question, deadline)
        except NoMessage:
            return None
        return kept_entry(found["message"])

    async def _widen(self, deadline: float, *, create: bool) -> None:
        """Let the stream of an older version take the subjects of this one."""
        if not create:
            raise InvalidState(f"{self.where}: it is older, and migrate=False forbids to change it")
        found = await self.questions.api(f"STREAM.INFO.{self.name}", {}, deadline)
        config = found["config"]
        config["subjects"] = sorted({*config["subjects"], *self._shape.subjects(self.root)})
        await self.questions.api(f"STREAM.UPDATE.{self.name}", config, deadline)

    def _fitting(self, subjects: Sequence[str]) -> Sequence[str]:
        """The first of them, as many as fit into one question."""
        room = self.room - _AROUND
        for at, subject in enumerate(subjects):
            room -= len(subject) + len('"",')
            if room < 0:
                return subjects[: max(1, at)]
        return subjects

    async def _newest(
        self, subjects: Sequence[str], deadline: float
    ) -> tuple[dict[str, Entry], bool]:
        """Some of the messages, and whether that was all."""
        several = self.replicas > 1
        # The clock's message is always there: an answer that has it tells how new it is.
        asked = [*subjects, self.clock] if several else subjects
        question = {"multi_last": asked, "batch": len(asked), "max_bytes": _PAGE_BYTES}
        while True:
            wanted = self.seen if several else 0
            messages, end = await self.questions.direct_batch(question, deadline)
            if int(end.get("Nats-UpTo-Sequence", 0)) >= wanted:
                break
            await asyncio.sleep(PAUSE)  # this replica is behind
        entries = {entry.subject: entry for entry in map(entry_of, messages)}
        entries.pop(self.clock, None)
        return entries, end.get(_LEFT, "0") == "0" or len(subjects) == 1

    def _acknowledged(self, answer: Msg) -> int:
        seq = int(self.questions.checked(answer)["seq"])
        self.seen = max(self.seen, seq)
        return seq
