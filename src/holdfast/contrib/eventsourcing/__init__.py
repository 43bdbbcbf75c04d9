"""Persistence for the `eventsourcing` library: its applications store their events in Holdfast.

    PERSISTENCE_MODULE=holdfast.contrib.eventsourcing
    HOLDFAST_URL=postgresql://localhost/app

Instead of the URL the library's own settings will do: see settings.py.

Everything is kept by the public facets, in namespaces of the application's own:

    eventsourcing/NAME/stored/PURPOSE   a run for each originator: see originators.py
    eventsourcing/NAME/notifications    one run, whose numbers are the notification ids
    eventsourcing/NAME/tracking         a record for each upstream application
"""

try:
    from holdfast.contrib.eventsourcing.factory import HoldfastFactory
    from holdfast.contrib.eventsourcing.recorders import (
        HoldfastAggregateRecorder,
        HoldfastApplicationRecorder,
        HoldfastProcessRecorder,
    )
    from holdfast.contrib.eventsourcing.tracking import HoldfastTrackingRecorder
except ModuleNotFoundError as exc:
    if (exc.name or "").partition(".")[0] != "eventsourcing":
        raise
    raise ImportError(
        "holdfast.contrib.eventsourcing needs the eventsourcing library: "
        "pip install 'holdfast[eventsourcing]'"
    ) from exc

__all__ = [
    "HoldfastAggregateRecorder",
    "HoldfastApplicationRecorder",
    "HoldfastFactory",
    "HoldfastProcessRecorder",
    "HoldfastTrackingRecorder",
]
