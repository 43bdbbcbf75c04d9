"""redis-py's errors, translated."""

from __future__ import annotations

from redis import exceptions

from holdfast.backends.redis.protocol import Refusal
from holdfast.errors import (
    Corrupt,
    Database,
    InvalidArgument,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)

# By the first word of the server's answer. It was refused, and nothing was done.
_ANSWERS: dict[str, type[StoreError]] = {
    "NOAUTH": Unauthorized,
    "WRONGPASS": Unauthorized,
    "NOPERM": Unauthorized,
    "LOADING": Unavailable,  # it is starting
    "READONLY": Unavailable,  # a replica: there was a failover
    "MASTERDOWN": Unavailable,
    "CLUSTERDOWN": Unavailable,
    "TRYAGAIN": Unavailable,  # a slot is moving
    "NOREPLICAS": Unavailable,
    "BUSY": Unavailable,  # somebody's script does not end
    "ASK": Unavailable,
    "MOVED": InvalidArgument,
    "CROSSSLOT": InvalidArgument,
    "CORRUPT": Corrupt,  # our own scripts say so
}
_HINTS = {
    "OOM": "the server has reached its maxmemory, and nothing was written",
    "CORRUPT": "a part of what was stored is not there; was it evicted, or its key deleted?",
    "MISCONF": "the server cannot write to its disk, and refuses to go on",
    "CROSSSLOT": "the server is part of a cluster: wanted redis+cluster:// in the URL",
    "MOVED": "the server is part of a cluster: wanted redis+cluster:// in the URL",
    "ASK": "the namespace is being moved to another node of the cluster",
    "WRONGTYPE": "something else is kept under one of this store's keys; is the prefix its own?",
}
_REFUSALS: tuple[tuple[str, type[StoreError]], ...] = (
    ("invalid password", Unauthorized),
    ("invalid username-password", Unauthorized),
    ("called without any password configured", Unauthorized),
    ("unauthenticated", Unauthorized),  # it takes but few words of who has not logged in
    ("db index is out of range", NotFound),
    ("select is not allowed in cluster mode", InvalidArgument),
    ("cluster support disabled", InvalidArgument),
    ("max number of clients", Unavailable),
)


def translate(refusal: Refusal, where: str) -> StoreError:
    """Our error for what the server answered to a command: it was not done."""
    code, words = refusal.code, refusal.words
    text = f"{where}: {_HINTS[code]}: {refusal}" if code in _HINTS else f"{where}: {refusal}"
    if code in _ANSWERS:
        return _ANSWERS[code](text, answer=code)
    for part, kind in _REFUSALS:
        if part in words.lower():
            return kind(text, answer=code)
    return Database(text, answer=code)


def translate_loss(exc: OSError, where: str) -> StoreError:
    """Our error for a connection that broke, or an answer that did not come, in a call."""
    if isinstance(exc, TimeoutError):
        return Timeout(f"{where}: no answer in time (call_timeout)", outcome_unknown=True)
    return Unavailable(f"{where}: the connection was lost: {exc}", outcome_unknown=True)


def translate_connect(exc: Exception, where: str) -> StoreError:
    """Our error for a connection that could not be made: nothing was sent."""
    if isinstance(exc, exceptions.TimeoutError | TimeoutError):
        return Timeout(f"{where}: no connection in time (connect_timeout)")
    if isinstance(exc, exceptions.AuthenticationError):
        return Unauthorized(f"{where}: {exc}")
    if isinstance(exc, exceptions.ResponseError):
        # redis-py takes the code off, if it knows it.
        code = getattr(exc, "status_code", None)
        return translate(Refusal(f"{code or ''} {exc}".strip()), where)
    return Unavailable(f"{where}: {exc}")
