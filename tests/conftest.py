"""What all tests share."""

import gc
import signal
from collections.abc import Iterator, Sequence

import pytest

pytest_plugins = ["holdfast.testing.plugin"]

# The modules that take longest, longest first. A parallel run begins with them (see the Makefile):
# one that came last would keep one worker busy while the others have nothing left to do.
LONG: Sequence[str] = (
    "machine/test_cells_machine.py",
    "conformance/test_sqlite_file.py",
    "crash/test_kill.py",
    "conformance/test_postgres.py",
    "conformance/test_pgbouncer.py",
    "conformance/test_nats.py",
    "bench/test_bench_events.py",
    "machine/test_records_machine.py",
    "machine/test_events_machine.py",
    "conformance/test_postgres_16.py",
    "faults/test_io_faults.py",
    "daemons/test_sweeper.py",
    "races/test_branches.py",
    "races/test_linearizability.py",
    "faults/test_postgres_faults.py",
    "faults/test_postgres_branches.py",
    "daemons/test_event_commands.py",
    "daemons/test_archiver.py",
    "bench/test_bench_records.py",
    "faults/test_power_loss.py",
    "conformance/test_sqlite_memory.py",
    "conformance/test_redis.py",
    "faults/test_io_branches.py",
    "projector/test_processes.py",
    "crash/test_archive_kill.py",
    "daemons/test_commands.py",
    "claim_check/test_processes.py",
    "nats/test_transport.py",
    "races/test_duplicates.py",
    "conformance/test_redis_cluster.py",
)

# A job in the background of a script ignores Ctrl-C and hands that down to whatever it starts;
# what tests start hears it, as it would in a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest modules first; the others stay in their order."""
    ranks = {f"tests/{module}": rank for rank, module in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


@pytest.fixture
def garbage_waits() -> Iterator[None]:
    """Garbage of other tests stays: where a stack ends its finalizers would fail."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
