"""What the library asks for its recorders, by PERSISTENCE_MODULE."""

from __future__ import annotations

from typing import Final, TypeVar

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ProcessRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic, strtobool

import holdfast
from holdfast import Capability, StoreConfig
from holdfast.contrib.eventsourcing.errors import translated
from holdfast.contrib.eventsourcing.recorders import (
    HoldfastAggregateRecorder,
    HoldfastApplicationRecorder,
    HoldfastProcessRecorder,
)
from holdfast.contrib.eventsourcing.settings import URL, store_url
from holdfast.contrib.eventsourcing.tracking import HoldfastTrackingRecorder

T = TypeVar("T")
_NAMELESS: Final = "application"


class HoldfastFactory(InfrastructureFactory[HoldfastTrackingRecorder]):
    """Recorders on one store, which it opens and closes."""

    HOLDFAST_URL = URL
    CREATE_TABLE = "CREATE_TABLE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        url = store_url(self.env)
        migrate = bool(strtobool(self.env.get(self.CREATE_TABLE) or "yes"))
        with translated():
            self.store = holdfast.open(url, config=StoreConfig(migrate=migrate))
        if not {Capability.EVENTS, Capability.TRANSACTIONS} <= self.store.capabilities:
            self.store.close()
            raise InfrastructureFactoryError(
                f"{self.store.engine} has no transactions, which the recorders need: "
                "use SQLite or PostgreSQL"
            )
        self._name: Final = f"eventsourcing/{self.env.name.lower() or _NAMELESS}"

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """A recorder of events, or of snapshots, without notifications."""
        return HoldfastAggregateRecorder(self.store, self._name, purpose)

    def application_recorder(self) -> ApplicationRecorder:
        """A recorder of events with notifications."""
        kind = self._class(self.APPLICATION_RECORDER_TOPIC, HoldfastApplicationRecorder)
        return kind(self.store, self._name)

    def tracking_recorder(
        self, tracking_recorder_class: type[HoldfastTrackingRecorder] | None = None
    ) -> HoldfastTrackingRecorder:
        """A recorder of positions; the class may be of the caller's own."""
        kind = tracking_recorder_class or self._class(
            self.TRACKING_RECORDER_TOPIC, HoldfastTrackingRecorder
        )
        return kind(self.store, self._name)

    def process_recorder(self) -> ProcessRecorder:
        """A recorder of events and positions."""
        kind = self._class(self.PROCESS_RECORDER_TOPIC, HoldfastProcessRecorder)
        return kind(self.store, self._name)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _class(self, setting: str, ours: type[T]) -> type[T]:
        """The class that the environment names, or ours."""
        topic = self.env.get(setting)
        kind = resolve_topic(topic) if topic else ours
        if not (isinstance(kind, type) and issubclass(kind, ours)):
            raise InfrastructureFactoryError(f"{setting}: {topic} is not a {ours.__name__}")
        return kind
