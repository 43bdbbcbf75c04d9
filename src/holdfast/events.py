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

__all__ = [
    "CONTRACT_VERSION",
    "EVENT_TYPES",
    "AppendResult",
    "Event",
    "Exported",
    "FeedEvent",
    "Imported",
    "RunSnapshot",
    "RunStatus",
    "StepSnapshot",
    "StepStatus",
    "fold",
    "idempotency_key",
]
