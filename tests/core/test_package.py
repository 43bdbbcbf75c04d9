"""What the package gives by its name: the public names, and the command."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.command import main

PROJECT = tomllib.loads(
    (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_importing_every_name_leaves_the_builtin_open_alone() -> None:
    names: dict[str, object] = {}
    exec("from holdfast import *", names)  # noqa: S102 - only at a module's top level otherwise
    assert "open" not in names
    assert names["open_async"] is holdfast.open_async
    builtins = set(names["__builtins__"])  # type: ignore[call-overload]
    assert builtins.isdisjoint(names)


def test_every_public_name_is_there() -> None:
    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []


def test_the_types_of_events_need_no_import_of_their_own() -> None:
    program = "import holdfast; print('RunStarted' in holdfast.events.EVENT_TYPES)"
    assert run(program) == "True\n"


def test_the_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


def test_the_command_is_installed_as_holdfast() -> None:
    assert PROJECT["scripts"] == {"holdfast": f"{main.__module__}:{main.__name__}"}


def test_the_extra_for_testing_brings_the_drivers_of_its_servers() -> None:
    extras = PROJECT["optional-dependencies"]
    drivers = {driver for name in ("postgres", "redis", "nats") for driver in extras[name]}
    assert drivers <= set(extras["testing"])
