"""What the server's refusals become, and whether they leave a write in doubt."""

import psycopg
import pytest

from holdfast import Conflict, Database, InvalidArgument, StoreError, Timeout, Unavailable
from holdfast.backends.postgres.errors import translate, translate_connect

# SQLSTATE: our error, retryable, outcome_unknown
STATEMENTS: dict[str, tuple[type[StoreError], bool, bool]] = {
    # The session broke, maybe after the commit
    "08000": (Unavailable, True, True),
    "08003": (Unavailable, True, True),
    "08006": (Unavailable, True, True),
    "08007": (Unavailable, True, True),
    "40003": (Unavailable, True, True),
    "57P01": (Unavailable, True, True),
    "57P02": (Unavailable, True, True),
    # The statement was not begun
    "08001": (Unavailable, True, False),
    "08004": (Unavailable, True, False),
    "25006": (Unavailable, True, False),
    "53300": (Unavailable, True, False),
    "57P03": (Unavailable, True, False),
    "57P05": (Unavailable, True, False),
    # The statement was undone
    "40001": (Conflict, True, False),
    "40P01": (Conflict, True, False),
    "55P03": (Timeout, True, False),
    "57014": (Timeout, True, False),
    "22001": (InvalidArgument, False, False),
    "53100": (Database, False, False),
}


def _error(state: str) -> psycopg.Error:
    return psycopg.errors.lookup(state)("the server's words")


@pytest.mark.parametrize("state", STATEMENTS)
def test_statements_error_says_whether_the_outcome_is_known(state: str) -> None:
    error = translate(_error(state), "here")
    assert (type(error), error.retryable, error.outcome_unknown) == STATEMENTS[state]
    assert (error.sqlstate, str(error)) == (state, "here: the server's words")


@pytest.mark.parametrize("lost", [psycopg.OperationalError, psycopg.InterfaceError])
def test_lost_connection_leaves_the_outcome_unknown(lost: type[psycopg.Error]) -> None:
    error = translate(lost("gone"), "here")
    assert (type(error), error.retryable, error.outcome_unknown) == (Unavailable, True, True)


@pytest.mark.parametrize(
    "state", [state for state, (kind, *_) in STATEMENTS.items() if kind is Unavailable]
)
def test_while_connecting_nothing_is_in_doubt(state: str) -> None:
    error = translate_connect(_error(state), "here")
    assert (type(error), error.retryable, error.outcome_unknown) == (Unavailable, True, False)
