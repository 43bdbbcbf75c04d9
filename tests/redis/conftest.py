"""What the tests of Redis share."""

from tests.faults.conftest import colour

__all__ = ["colour"]
