"""A daemon for every namespace: what it says while it runs."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.cli.everywhere import Everywhere
from holdfast.cli.projector import totals_of


def test_the_totals_of_namespaces_is_logged_in_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="holdfast.cli")
    with holdfast.open("sqlite://:memory:") as store:
        for name in ("one", "two"):
            view = store.namespace(name)
            view.events.append_event(holdfast.Event("r", "Noted", "k"))
        everywhere: Everywhere[holdfast.Projector]
        rounds = 0

        def work(projector: holdfast.Projector) -> bool:
            nonlocal rounds
            projector.drain()
            rounds += 1
            if rounds == 2:
                everywhere.stop()
            return False

        everywhere = Everywhere(
            store,
            lambda name: holdfast.Projector(store.namespace(name)),
            say=totals_of,
            report=1e-9,
        )
        everywhere.run(work, 0.01)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("2 namespaces: ")
    assert "events=2, kept=2" in line
    assert "lag_secs=0.0" in line
