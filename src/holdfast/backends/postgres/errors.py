"""psycopg's errors, translated."""

from __future__ import annotations

import psycopg

from holdfast.errors import (
    Conflict,
    Corrupt,
    Database,
    InvalidArgument,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)

# By SQLSTATE, the longest match first.
_STATES: dict[str, type[StoreError]] = {
    "23505": Conflict,
    "23503": InvalidArgument,
    "40001": Conflict,  # serialization failure
    "40P01": Conflict,  # deadlock
    "40003": Unavailable,  # statement completion unknown
    "55P03": Timeout,  # lock not available
    "57014": Timeout,  # statement timeout
    "25P03": Timeout,  # idle in transaction
    "42501": Unauthorized,
    "3D000": NotFound,
    "53300": Unavailable,  # too many connections
    "25006": Unavailable,  # read-only: a standby
    "XX001": Corrupt,
    "XX002": Corrupt,
    "28": Unauthorized,
    "08": Unavailable,
    "57P": Unavailable,  # the server is stopping or starting
    "22": InvalidArgument,
}
_RETRYABLE = {"40001", "40P01"}
# Unavailable, but the server said so before it began: nothing was written. All others may
# reach us after a commit, as when a server that stops ends the session before its answer.
_NOT_BEGUN = {
    "08001",  # no connection could be made
    "08004",  # the connection was refused
    "25006",  # read-only: a standby
    "53300",  # too many connections
    "57P03",  # the server is starting up
    "57P05",  # it ended the session while that was idle
}
# While connecting, libpq hands on only the server's words.
_REFUSALS: tuple[tuple[str, type[StoreError]], ...] = (
    ("authentication failed", Unauthorized),
    ("no password supplied", Unauthorized),
    ("no pg_hba.conf entry", Unauthorized),
    ("does not exist", NotFound),
    ("no such database", NotFound),  # PgBouncer
    ("unsupported startup parameter", InvalidArgument),  # PgBouncer, about the URL's own options
    ("timeout expired", Timeout),
    ("invalid port number", InvalidArgument),
    ("invalid integer value", InvalidArgument),
    ("unrecognized configuration parameter", InvalidArgument),
)


def translate(exc: psycopg.Error, where: str) -> StoreError:
    """Our error for a statement's failure."""
    if isinstance(exc, psycopg.errors._WaitTimeout):  # noqa: SLF001 - what `wait` raises
        return Timeout(f"{where}: no answer; the server may be gone", outcome_unknown=True)
    text = f"{where}: {_words(exc)}"
    state = exc.sqlstate
    if state is None:
        if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
            # The connection is gone, and with it the answer.
            return Unavailable(text, outcome_unknown=True)
        return InvalidArgument(text) if isinstance(exc, psycopg.DataError) else Database(text)
    kind = _kind(state)
    return kind(
        text,
        retryable=True if state in _RETRYABLE else None,
        outcome_unknown=kind is Unavailable and state not in _NOT_BEGUN,
        sqlstate=state,
    )


def translate_connect(exc: psycopg.Error, where: str) -> StoreError:
    """Our error for a connection that could not be made: nothing was sent."""
    text = f"{where}: {_words(exc)}"
    if exc.sqlstate is not None:
        return _kind(exc.sqlstate)(text, sqlstate=exc.sqlstate)
    for words, kind in _REFUSALS:
        if words in text:
            return kind(text)
    if isinstance(exc, psycopg.ProgrammingError):
        return InvalidArgument(text)
    return Unavailable(text)


def _kind(state: str) -> type[StoreError]:
    for length in (5, 3, 2):
        if state[:length] in _STATES:
            return _STATES[state[:length]]
    return Database


def _words(exc: psycopg.Error) -> str:
    return str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
