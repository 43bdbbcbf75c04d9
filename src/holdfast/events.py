"""What events are made of: the types, the key, the version of the contract."""

from holdfast.facets.events import (
    CONTRACT_VERSION,
    AppendResult,
    Event,
    FeedEvent,
    idempotency_key,
)
from holdfast.facets.events_lines import Exported, Imported
from holdfast.facets.projection import (
    EVENT_TYPES,
    RunSnapshot,
    RunStatus,
    StepSnapshot,
    StepStatus,
    fold,
)
from holdfast.facets.views import RUN, Projection, View

__all__ = [
    "CONTRACT_VERSION",
    "EVENT_TYPES",
    "RUN",
    "AppendResult",
    "Event",
    "Exported",
    "FeedEvent",
    "Imported",
    "Projection",
    "RunSnapshot",
    "RunStatus",
    "StepSnapshot",
    "StepStatus",
    "View",
    "fold",
    "idempotency_key",
]
