"""The test cases that the eventsourcing library ships for those who write recorders.

A test module imports them and provides the fixture `store_url`, the URL of an empty store.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

import pytest
from eventsourcing.persistence import ProcessRecorder, Tracking
from eventsourcing.tests import application, persistence, projection
from eventsourcing.utils import Environment

from holdfast import Store
from holdfast.contrib.eventsourcing import (
    HoldfastAggregateRecorder,
    HoldfastApplicationRecorder,
    HoldfastFactory,
    HoldfastProcessRecorder,
    HoldfastTrackingRecorder,
)
from holdfast.sync.transaction import Transaction

__all__ = [
    "TestAggregateRecorder",
    "TestApplication",
    "TestApplicationRecorder",
    "TestCountersProjection",
    "TestCountersView",
    "TestEventSourcedProjection",
    "TestFactory",
    "TestNonInterleavingIds",
    "TestProcessRecorder",
    "TestSnapshotRecorder",
    "TestTextIds",
    "TestTrackingRecorder",
]

MODULE = "holdfast.contrib.eventsourcing"


def environment(url: str) -> dict[str, str]:
    """The settings by which an application switches to Holdfast."""
    return {"PERSISTENCE_MODULE": MODULE, "HOLDFAST_URL": url}


class Made:
    """A factory on the store, for one test."""

    factory: HoldfastFactory

    @pytest.fixture(autouse=True)
    def make(self, store_url: str, request: pytest.FixtureRequest) -> None:
        self.factory = HoldfastFactory(Environment("App", environment(store_url)))
        request.addfinalizer(self.factory.close)  # noqa: PT021 - a method of a TestCase


class TestAggregateRecorder(Made, persistence.AggregateRecorderTestCase):
    def create_recorder(self) -> HoldfastAggregateRecorder:
        recorder = self.factory.aggregate_recorder()
        assert isinstance(recorder, HoldfastAggregateRecorder)
        return recorder


class TestSnapshotRecorder(Made, persistence.AggregateRecorderTestCase):
    def create_recorder(self) -> HoldfastAggregateRecorder:
        recorder = self.factory.aggregate_recorder("snapshots")
        assert isinstance(recorder, HoldfastAggregateRecorder)
        return recorder


class TestApplicationRecorder(Made, persistence.ApplicationRecorderTestCase[Any]):
    def create_recorder(self) -> HoldfastApplicationRecorder:
        recorder = self.factory.application_recorder()
        assert isinstance(recorder, HoldfastApplicationRecorder)
        return recorder

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestTextIds(TestApplicationRecorder):
    def new_originator_id(self) -> str:
        return f"thing:{uuid4()}"


class TestTrackingRecorder(Made, persistence.TrackingRecorderTestCase):
    def create_recorder(self) -> HoldfastTrackingRecorder:
        return self.factory.tracking_recorder()


class TestProcessRecorder(Made, persistence.ProcessRecorderTestCase):
    def create_recorder(self) -> ProcessRecorder:
        return self.factory.process_recorder()


class TestNonInterleavingIds(Made, persistence.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> HoldfastApplicationRecorder:
        recorder = self.factory.application_recorder()
        assert isinstance(recorder, HoldfastApplicationRecorder)
        return recorder


class OwnTrackingRecorder(HoldfastTrackingRecorder):
    pass


class TestFactory(persistence.InfrastructureFactoryTestCase[HoldfastFactory]):
    @pytest.fixture(autouse=True)
    def settings(self, store_url: str) -> None:
        self.env = Environment("App", environment(store_url))

    def expected_factory_class(self) -> type[HoldfastFactory]:
        return HoldfastFactory

    def expected_aggregate_recorder_class(self) -> type[HoldfastAggregateRecorder]:
        return HoldfastAggregateRecorder

    def expected_application_recorder_class(self) -> type[HoldfastApplicationRecorder]:
        return HoldfastApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[HoldfastTrackingRecorder]:
        return HoldfastTrackingRecorder

    def tracking_recorder_subclass(self) -> type[HoldfastTrackingRecorder]:
        return OwnTrackingRecorder

    def expected_process_recorder_class(self) -> type[HoldfastProcessRecorder]:
        return HoldfastProcessRecorder


class CountersView(HoldfastTrackingRecorder, projection.EventCountersView):
    """A view in records, which is committed together with its position."""

    opened: ClassVar[list[Store]] = []

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store, name)
        self.opened.append(store)

    def get_created_event_counter(self) -> int:
        return self._count("created")

    def get_subsequent_event_counter(self) -> int:
        return self._count("subsequent")

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self._add("created", tracking)

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self._add("subsequent", tracking)

    def _count(self, counter: str) -> int:
        return int(self.store.records.get_field("counters", counter) or 0)

    def _add(self, counter: str, tracking: Tracking) -> None:
        def add(tx: Transaction) -> None:
            self.track(tx, tracking)
            count = int(tx.records.get_field("counters", counter) or 0)
            tx.records.set_field("counters", counter, count + 1)

        self.store.transact(add)


class TestCountersView(Made, projection.EventCountersViewTestCase):
    def construct_event_counters_view(self) -> projection.EventCountersView:
        return self.factory.tracking_recorder(CountersView)  # type: ignore[return-value]


class TestCountersProjection(projection.AggregateEventCountersProjectionTestCase):
    view_class = CountersView

    @pytest.fixture(autouse=True)
    def settings(self, store_url: str, request: pytest.FixtureRequest) -> None:
        self.env = environment(store_url)  # type: ignore[misc]
        request.addfinalizer(self.close)  # noqa: PT021 - a method of a TestCase

    def close(self) -> None:
        """The library's runner closes its application, but not the view's factory."""
        while CountersView.opened:
            CountersView.opened.pop().close()


class TestEventSourcedProjection(projection.EventSourcedProjectionTestCase):
    @pytest.fixture(autouse=True)
    def settings(self, store_url: str) -> None:
        self.env = environment(store_url)  # type: ignore[misc]


class TestApplication(application.ExampleApplicationTestCase):
    expected_factory_topic = f"{MODULE}.factory:HoldfastFactory"

    @pytest.fixture(autouse=True)
    def settings(self, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in environment(store_url).items():
            monkeypatch.setenv(name, value)
