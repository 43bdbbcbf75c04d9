"""Environments of their own for peers whose packages must not mix with ours.

Each is a venv under bench/.contenders, made on first use with the interpreter that runs the
benchmark. The installed version is exactly the one that is named here.
"""

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from bench.scenario import Environment

_FOLDER: Final = Path(__file__).parent / ".contenders"
_PACKAGES: Final[dict[Environment, str]] = {
    "strata": "stratadb==0.14.5",  # the last release with state cells
    "aiosqlite": "aiosqlite==0.22.1",
    "diskcache": "diskcache==5.6.3",
    # With the driver in C, as ours: by itself it may come with the one in Python.
    "eventsourcing": "eventsourcing[postgres]==9.5.6 psycopg[binary]==3.3.8",
    "py-key-value": "py-key-value-aio[disk,postgresql,redis]==0.4.6",
}
_INSTALL_SECS: Final = 300


class NoEnvironment(RuntimeError):
    """A contender's package cannot be had; the message says why."""


def interpreter(environment: Environment) -> Path:
    """The Python that has the contender's package, installed now if it is not there."""
    if environment == "own":
        return Path(sys.executable)
    folder = _FOLDER / environment
    python = folder / "bin" / "python"
    package = _PACKAGES[environment]
    # Written last, so that an installation that broke off is made anew.
    done = folder / "installed"
    if done.is_file() and done.read_text() == _mark(package):
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise NoEnvironment(f"{package}: no environment could be made: {exc}") from exc
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    command = [*install, *package.split()]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECS
        )
    except subprocess.TimeoutExpired as expired:
        raise NoEnvironment(f"{package}: pip took more than {_INSTALL_SECS} s") from expired
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["pip gave no reason"]
        raise NoEnvironment(f"{package} cannot be installed: {lines[-1]}")
    done.write_text(_mark(package))
    return python


def _mark(package: str) -> str:
    return f"{package} for {sys.executable} {sys.version}\n"
