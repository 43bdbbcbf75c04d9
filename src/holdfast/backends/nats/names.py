"""Names in byte order, which NATS itself does not have.

The server tells the subjects below some tokens, without their values. They are sorted here. A
long list is cut: the smallest names are kept, as many as a window holds, and when they are used
up the list is asked for again. So a scan of a million names holds one window of them. A page
that goes on where another one ended finds the rest of its window here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place

_WINDOW = 50_000  # names: some 5 MB
_MOST_WINDOWS = 8


class Window(NamedTuple):
    """Some names in order, from `at` on; `whole` if there are no others behind them."""

    names: list[str]
    at: int
    whole: bool
    seen: int  # the end of the log when the list was made


class Names:
    """The lists of names of one store."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._windows: OrderedDict[tuple[str, str, str], Window] = OrderedDict()

    async def above(
        self, place: Place, prefix: str, after: str | None, deadline: float, *, newest: bool
    ) -> Window:
        """The names with the prefix above `after`.

        With `newest` as they are now, else perhaps as they were when an earlier page was read.
        """
        kept = self._windows.pop((place.root, prefix, after), None) if after else None
        if kept is not None and newest:
            info = await self._stream.info(deadline)
            kept = kept if info.last_seq == kept.seen else None
        return kept or await self._list(place, prefix, after)

    def keep(self, place: Place, prefix: str, window: Window, used: int) -> str | None:
        """Remember what is left when `used` names were looked at; the last of these, if any is."""
        at = window.at + used
        rest = at < len(window.names)
        if not rest and window.whole:
            return None
        last = window.names[at - 1]
        self._windows.pop((place.root, prefix, last), None)  # of somebody who came here before
        if rest:
            self._windows[place.root, prefix, last] = window._replace(at=at)
            if len(self._windows) > _MOST_WINDOWS:
                self._windows.popitem(last=False)
        return last

    async def _list(self, place: Place, prefix: str, after: str | None) -> Window:
        names: list[str] = []
        whole = True
        seen = 0
        async for page in self._stream.subjects(place.below(prefix)):
            seen = seen or page.last_seq
            both = {
                name
                for name in map(place.name, page.subjects)
                if name.startswith(prefix) and (after is None or name > after)
            }
            both.update(names)
            names = sorted(both)[:_WINDOW]
            whole = whole and len(both) == len(names)
        return Window(names, 0, whole, seen)
