"""The projector as a command: until it is asked to stop, or once; in one namespace or in all."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.cli.daemons import stop_by_signal
from holdfast.cli.everywhere import Everywhere
from holdfast.cli.existing import open_existing
from holdfast.errors import InvalidArgument
from holdfast.facets.daemons import ProjectTotals
from holdfast.facets.views import Projection
from holdfast.sync.projector import Projector
from holdfast.sync.store import Store

_LOOK_EVERY = 0.2  # seconds between two looks for events in all namespaces


class Projected(msgspec.Struct, frozen=True):
    """What a projector did, and how far it is behind; `marked` are views that failed."""

    events: int
    kept: int
    resyncs: int
    gaps: int
    failed: int
    marked: int
    lag_secs: float


def project(options: argparse.Namespace) -> Projected:
    """Project until a signal comes, or what is there: what was done."""
    projections = [find_projection(path) for path in options.projections or ()]
    with open_existing(options.url, options.namespace) as store:

        def make(view: Store) -> Projector:
            return Projector(
                view,
                projections,
                shards=options.shards,
                lease=options.lease,
                every=options.every,
                resync=options.resync,
            )

        if options.all_namespaces:
            everywhere = Everywhere(store, lambda name: make(store.namespace(name)), say=totals_of)
            stop_by_signal(everywhere, once=options.once)
            if options.once:
                everywhere.run_once(Projector.drain)
            else:
                everywhere.run(_projected, _LOOK_EVERY)
                for each in everywhere.daemons.values():
                    each.close()
            return totals_of(everywhere.daemons.values())
        projector = make(store)
        stop_by_signal(projector, once=options.once)
        if options.once:
            projector.drain()
        else:
            projector.run()
        return totals_of([projector])


def find_projection(path: str) -> Projection[Any]:
    """The projection that `module:name` names; InvalidArgument, with the reason, without one."""
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise InvalidArgument(f"projection {path!r}: wanted MODULE:NAME, such as shop.views:cost")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise InvalidArgument(f"projection {path!r}: not found: {exc}") from exc
    if not isinstance(found, Projection):
        raise InvalidArgument(f"projection {path!r}: is a {type(found).__name__}, no Projection")
    return found


def _projected(projector: Projector) -> bool:
    return projector.project() > 0


def totals_of(projectors: Iterable[Projector]) -> Projected:
    """What all of them did, and how far the last one is behind."""
    every = list(projectors)
    totals = sum((each.totals for each in every), ProjectTotals())
    lag = max((each.status().lag.total_seconds() for each in every), default=0.0)
    return Projected(
        **msgspec.structs.asdict(totals),
        marked=sum(len(each.marks()) for each in every),
        lag_secs=round(lag, 3),
    )
