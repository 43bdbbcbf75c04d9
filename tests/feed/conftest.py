"""The same engines and databases as for races."""

from tests.races.conftest import engine, new_url, postgres

__all__ = ["engine", "new_url", "postgres"]
