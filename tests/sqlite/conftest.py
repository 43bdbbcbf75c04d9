from collections.abc import Iterator

import pytest

from tests.sqlite.spent import Spent, counted


@pytest.fixture
def spent() -> Iterator[Spent]:
    with counted() as spent:
        yield spent
