"""What NATS says, translated."""

from __future__ import annotations

from typing import Any

from nats.errors import Error, MaxPayloadError

from holdfast.errors import (
    Database,
    InvalidArgument,
    InvalidState,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)

_REFUSED = ("authorization violation", "authentication", "permissions violation")
_SERVICE_UNAVAILABLE = 503


class NotSent(Exception):
    """Nobody took the message: nothing was done, and it may be sent again."""


class NoAnswer(Exception):
    """The answer is missing: it may have been done or not."""


class WrongSequence(Exception):
    """Somebody else has written to the subject."""


class NoMessage(Exception):
    """There is none of that subject."""


# By JetStream's own numbers for what went wrong.
_TOO_LARGE = {10054, 10097}
_FULL = (Database, ": the stream or its server has no room left")
_OFF = (InvalidState, ": the store needs a server with JetStream")
_NOT_AS_WANTED = (InvalidArgument, "")  # a stream that cannot be made like that
# No leader now, or a new one in the middle of a batch, too many of them, or an earlier try of the
# same message is still being stored: this one was not.
_LATER = (NotSent, "")
_ERRORS: dict[int, tuple[type[Exception], str]] = {
    10071: (WrongSequence, ""),
    10164: (WrongSequence, ""),
    **dict.fromkeys((10002, 10023, 10028, 10047, 10077), _FULL),
    **dict.fromkeys((10039, 10076), _OFF),
    **dict.fromkeys((10005, 10052, 10058, 10065, 10074), _NOT_AS_WANTED),
    **dict.fromkeys((10008, 10009, 10158, 10176, 10210, 10211), _LATER),
    **dict.fromkeys((10037, 10057), (NoMessage, "")),
    10059: (NotFound, ": the store's stream is not there"),
}
_NO_PEERS, _OFFLINE = 10005, "peer offline"


def api_error(error: dict[str, Any], where: str) -> Exception:
    """What an answer of JetStream that is an error stands for."""
    number = error.get("err_code", 0)
    text = f"{where}: {error.get('description', 'an error without words')}"
    if number in _TOO_LARGE:
        return too_large(text)
    if number == _NO_PEERS and _OFFLINE in text:
        return NotSent(text)  # there are enough of them, but not all are there right now
    kind, hint = _ERRORS.get(number, (Database, ""))
    if number not in _ERRORS and error.get("code") == _SERVICE_UNAVAILABLE:
        kind = NotSent
    return kind(f"{text}{hint}")


def too_large(text: str) -> InvalidArgument:
    """The error for what is larger than the server takes in one message."""
    return InvalidArgument(
        f"{text}; keep large data elsewhere and store a reference to it (claim check), "
        "or raise max_payload of the server"
    )


def refused(exc: BaseException | None) -> bool:
    """True if the server did not like who we are."""
    return any(word in str(exc).lower() for word in _REFUSED)


def connect_error(cause: BaseException | None, where: str) -> StoreError:
    """The error for a connection that could not be made."""
    if isinstance(cause, MaxPayloadError):
        return too_large(f"{where}: {cause}")
    words = str(cause) if cause is not None and str(cause) else type(cause).__name__
    if refused(cause):
        return Unauthorized(f"{where}: {words}")
    if cause is None or isinstance(cause, TimeoutError):
        return Unavailable(f"{where}: no connection in time")
    if isinstance(cause, Error | OSError):
        return Unavailable(f"{where}: {words}")
    return Database(f"{where}: {words}")


def gave_up(last: Exception | None, where: str, *, write: bool) -> StoreError:
    """The error for a call that was not answered in the time allowed."""
    unknown = write and isinstance(last, NoAnswer)
    if isinstance(last, NotSent):
        return Unavailable(f"{where}: nobody takes messages: {last}", outcome_unknown=unknown)
    return Timeout(f"{where}: no answer in time", outcome_unknown=unknown)
