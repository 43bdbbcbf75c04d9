"""The lag and its alert, without a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import ProjectorAlert
from holdfast.facets.lag import Lag
from tests.projector import lag as harness

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def secs(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_one_alert_for_each_time_that_it_is_too_much(caplog: pytest.LogCaptureFixture) -> None:
    told: list[ProjectorAlert] = []
    lag = Lag(secs(5), told.append)
    for behind, alerts in [(0, 0), (5, 0), (6, 1), (60, 1), (5.5, 1), (4, 1), (7, 2), (0, 2)]:
        lag.measure(NOW, NOW - secs(behind))
        assert (lag.lag, len(told)) == (secs(behind), alerts)
        assert (lag.alert is None) == (behind <= 5)
    assert told == [ProjectorAlert(secs(6)), ProjectorAlert(secs(7))]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [(one.alert, one.severity) for one in warnings] == [("PROJECTOR_LAG_HIGH", "P2")] * 2  # type: ignore[attr-defined]


def test_nothing_that_waits_is_no_lag_and_a_clock_that_went_back_neither() -> None:
    lag = Lag(secs(5), None)
    lag.measure(NOW, None)
    assert lag.lag == secs(0)
    lag.measure(NOW, NOW + secs(9))
    assert (lag.lag, lag.alert) == (secs(0), None)


def test_what_the_caller_does_with_an_alert_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(alert: ProjectorAlert) -> None:
        raise ZeroDivisionError(alert)

    lag = Lag(secs(5), broken)
    lag.measure(NOW, NOW - secs(6))
    assert lag.alert == ProjectorAlert(secs(6))
    assert "on_alert raised" in caplog.text


def test_control_the_harness_tells_a_large_lag_and_a_stream_that_was_too_slow() -> None:
    promised = int(harness.RATE * harness.SECS)
    fine = [0.1] * 999
    assert harness.Measured([*fine, 1.0], int(promised * 0.95)).faults == []
    (lag,) = harness.Measured([*fine, 1.1], promised).faults  # though 99 of 100 are below
    assert lag == "the largest lag is 1.10 s, above 1 s"
    (void,) = harness.Measured(fine, int(promised * 0.94)).faults
    assert void.startswith("void: ")
    assert harness.Measured([], promised).faults == ["void: nobody looked"]
