"""What the tests of Redis share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.world import BlockingColour, Colour, LoopColour


@pytest.fixture(params=[BlockingColour, LoopColour], ids=["blocking", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    colour: Colour = request.param()
    yield colour
    colour.close()
