"""How far a projector is behind, by the store's clock, and the alert when that is too far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.facets.daemons import ProjectorAlert
from holdfast.facets.events import Event

_log = logging.getLogger("holdfast.projector")
_NONE = timedelta(0)

OnAlert = Callable[[ProjectorAlert], object]


class Lag:
    """The last measured lag; above a limit there is one alert until it is below again."""

    def __init__(self, alert_after: timedelta, on_alert: OnAlert | None) -> None:
        self._alert_after = alert_after
        self._on_alert = on_alert
        self._clock: tuple[datetime, float] | None = None  # the store's, and time.monotonic()
        self.lag = _NONE
        self.alert: ProjectorAlert | None = None
        self.quiet = False
        """True: what has waited until now is no reason for an alert."""

    def set_clock(self, now: datetime) -> None:
        """Note the store's time."""
        self._clock = now, time.monotonic()

    def measure(self, now: datetime, waiting_since: datetime | None) -> None:
        """Note the store's time, and since when the oldest event waits; None: nothing waits."""
        self.set_clock(now)
        self.lag = _NONE if waiting_since is None else max(_NONE, now - waiting_since)
        if self.lag > self._alert_after:
            if not self.quiet:
                self._raise_alert()
        elif self.alert is not None:
            _log.info("%s is over: lag %.1f s", self.alert.code, self.lag.total_seconds())
            self.alert = None

    def age(self, event: Event) -> timedelta:
        """For how long the event has been stored, about: by the time of the last measurement."""
        if self._clock is None or event.persisted_at is None:
            return _NONE
        now, measured_at = self._clock
        return now + timedelta(seconds=time.monotonic() - measured_at) - event.persisted_at

    def _raise_alert(self) -> None:
        if self.alert is not None:
            return
        self.alert = alert = ProjectorAlert(self.lag)
        _log.warning(
            "%s %s: views are %.1f s behind",
            *(alert.severity, alert.code, alert.lag.total_seconds()),
            extra={"alert": alert.code, "severity": alert.severity},
        )
        if self._on_alert is not None:
            try:
                self._on_alert(alert)
            except Exception:  # noqa: BLE001 - the caller may raise anything
                # Views must not fall behind even more because of it.
                _log.exception("on_alert raised")
