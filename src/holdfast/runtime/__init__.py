"""The two colours of one core.

Everything above a backend's connection is `async def`, written once. It awaits
nothing but a backend's primitives, and those are built on a `Runtime`: either
asyncio's, or the blocking one, whose coroutines never suspend, so that a single
`send(None)` runs them to the end without a loop or a thread.
"""

from holdfast.runtime.contract import (
    Coalescer,
    Flush,
    Hold,
    Limiter,
    Place,
    Runtime,
    Signal,
    Topic,
    Unit,
    Work,
)

__all__ = [
    "Coalescer",
    "Flush",
    "Hold",
    "Limiter",
    "Place",
    "Runtime",
    "Signal",
    "Topic",
    "Unit",
    "Work",
]
