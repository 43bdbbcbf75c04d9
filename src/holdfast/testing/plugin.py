"""The pytest plugin that runs conformance specs.

A backend's test module provides the fixture `engine` and imports the specs:

    pytest_plugins = ["holdfast.testing.plugin"]          # in conftest.py

    from holdfast.testing.conformance.suite import *      # in test_mine.py

    @pytest.fixture
    def engine(tmp_path):
        return Engine("mine", CAPABILITIES, lambda: f"mine://{uuid4()}")

Each spec then runs in every colour, or in those that the module names:

    colours = ["blocking", "asyncio"]

A spec that needs an ability which the
engine lacks is skipped, and the end of the run lists what each engine lacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import uvloop

from holdfast import Capability
from holdfast.testing.world import BlockingColour, Colour, Engine, LoopColour, World

# Specs live outside the tests folder, and a failing one should still show its values.
pytest.register_assert_rewrite("holdfast.testing.conformance")

COLOURS: dict[str, Callable[[], Colour]] = {
    "blocking": BlockingColour,
    "asyncio": LoopColour,
    "uvloop": lambda: LoopColour(uvloop.new_event_loop),
}
_LACKS = "holdfast lacks"

Spec = TypeVar("Spec", bound=Callable[..., Any])


def needs(*capabilities: Capability) -> Callable[[Spec], Spec]:
    """Marks a spec that is only for engines with these abilities."""

    def mark(spec: Spec) -> Spec:
        spec.needs = frozenset(capabilities)  # type: ignore[attr-defined]
        return spec

    return mark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each spec once for every colour."""
    if "world" in metafunc.fixturenames:
        colours = getattr(metafunc.module, "colours", list(COLOURS))
        metafunc.parametrize("world", colours, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, engine: Engine) -> Iterator[World]:
    """A fresh store on the engine, in one colour."""
    missing = frozenset(Capability) - engine.capabilities
    lacks = "; ".join(sorted(capability.value for capability in missing)) or "nothing"
    request.node.user_properties.append((_LACKS, f"{engine.name} lacks {lacks}"))
    wanted: frozenset[Capability] = getattr(request.function, "needs", frozenset()) & missing
    if wanted:
        names = ", ".join(sorted(capability.name for capability in wanted))
        pytest.skip(f"{engine.name} lacks {names}")
    world = World(engine, COLOURS[request.param]())
    yield world
    world.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` spec in its world."""
    world = pyfuncitem.funcargs.get("world")
    if not isinstance(world, World) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    world.colour.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Add the summary."""
    config.pluginmanager.register(_Summary(), "holdfast-summary")


class _Summary:
    """Says at the end what each engine lacks: nothing is passed over in silence.

    Collected from the reports, which also come from the workers of a parallel run.
    """

    def __init__(self) -> None:
        self._lines: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what a spec's engine lacks."""
        self._lines |= {str(line) for name, line in report.user_properties if name == _LACKS}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it, a line per engine."""
        for line in sorted(self._lines):
            terminalreporter.write_line(f"conformance: {line}")
