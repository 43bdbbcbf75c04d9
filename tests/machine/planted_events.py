"""Faults of events for the machine to find: each stands between it and the real ones."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import AppendResult, AsyncStore, Conflict, Event, FeedEvent
from holdfast.events import RunSnapshot


class PlantedEvents:
    """The events as they are; a fault changes one method."""

    def __init__(self, store: AsyncStore, namespace: str) -> None:
        self.events = store.namespace(namespace).events

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever events have
        return getattr(self.events, name)


class RepeatsAreNew(PlantedEvents):
    async def append_events(self, events: list[Event], **options: Any) -> list[AppendResult]:  # noqa: ANN401
        found = await self.events.append_events(events, **options)
        return [msgspec.structs.replace(one, idempotent=False, persisted=True) for one in found]


class MismatchesAreNotTold(PlantedEvents):
    async def append_events(self, events: list[Event], **options: Any) -> list[AppendResult]:  # noqa: ANN401
        found = await self.events.append_events(events, **options)
        return [msgspec.structs.replace(one, payload_mismatch=False) for one in found]


class ExpectationsAreIgnored(PlantedEvents):
    async def append_events(self, events: list[Event], **_: object) -> list[AppendResult]:
        return await self.events.append_events(events)


class EventIdsAreIgnored(PlantedEvents):
    async def append_events(self, events: list[Event], **options: Any) -> list[AppendResult]:  # noqa: ANN401
        bare = [msgspec.structs.replace(event, event_id=None) for event in events]
        return await self.events.append_events(bare, **options)


class HalfACallGoesIn(PlantedEvents):
    async def append_events(self, events: list[Event], **options: Any) -> list[AppendResult]:  # noqa: ANN401
        try:
            return await self.events.append_events(events, **options)
        except Conflict:
            await self.events.append_event(msgspec.structs.replace(events[0], event_id=None))
            raise


class FetchDropsTheLast(PlantedEvents):
    async def fetch_events(self, run_id: str, **options: Any) -> list[Event]:  # noqa: ANN401
        return (await self.events.fetch_events(run_id, **options))[:4]


class EverythingCanBeDeleted(PlantedEvents):
    async def delete_run(self, run_id: str, **_: object) -> None:
        await self.events.delete_run(run_id, force=True)


class NamespacesAreOne(PlantedEvents):
    def __init__(self, store: AsyncStore, namespace: str) -> None:
        super().__init__(store, namespace.rstrip("%"))


class KeptSnapshotsAreNotFresh(PlantedEvents):
    async def get_snapshot(self, run_id: str) -> RunSnapshot | None:
        found = await self.events.get_snapshot(run_id)
        if found is not None and found.last_event_seq > 3:
            return msgspec.structs.replace(found, last_event_seq=3)
        return found


class FeedPassesOver(PlantedEvents):
    def feed(self, **options: Any) -> Any:  # noqa: ANN401
        return _Passing(self.events.feed(**options))


class _Passing:
    def __init__(self, feed: Any) -> None:  # noqa: ANN401 - the real one
        self._feed = feed

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._feed, name)

    async def next(self, timeout: float) -> Any:  # noqa: ANN401, ASYNC109 - as the real one
        while True:
            found = await self._feed.next(timeout)
            if not isinstance(found, FeedEvent) or found.event.run_seq != 3:
                return found


EVENT_FAULTS: list[type[PlantedEvents]] = [
    RepeatsAreNew,
    MismatchesAreNotTold,
    ExpectationsAreIgnored,
    EventIdsAreIgnored,
    HalfACallGoesIn,
    FetchDropsTheLast,
    EverythingCanBeDeleted,
    NamespacesAreOne,
    KeptSnapshotsAreNotFresh,
    FeedPassesOver,
]
