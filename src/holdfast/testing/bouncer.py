"""A real PgBouncer in front of a test server.

The program is not in a Python package: `find_pgbouncer` looks for the system's
(Debian's package is `pgbouncer`), or takes the path in HOLDFAST_PGBOUNCER.

    need_pgbouncer()  # at the top of a test module: skipped without one

    with PostgresServer() as server, PgBouncer(server.port) as bouncer:
        url = bouncer.through(server.create_database())
"""

import atexit
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from holdfast.testing.ports import ADDRESS, ReservedPort
from holdfast.testing.postmaster import Postmaster, ServerError, server_user

MISSING: Final = (
    "there is no pgbouncer on this machine: install the package of that name, or set "
    "HOLDFAST_PGBOUNCER to the program's path"
)
_SBIN: Final = "/usr/local/sbin:/usr/sbin"  # seldom in the PATH of an unprivileged user
_READY: Final = "process up"
_PORT_TAKEN: Final = "Address already in use"
_PORT_ATTEMPTS: Final = 5


def find_pgbouncer() -> str | None:
    """The program's path; None if there is none."""
    given = os.environ.get("HOLDFAST_PGBOUNCER")
    return given or shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def need_pgbouncer() -> None:
    """Skip the test module that calls this, saying why, where there is no PgBouncer.

    With HOLDFAST_NEED_PGBOUNCER set, as `make pgbouncer` does, that is a failure instead.
    """
    import pytest

    if find_pgbouncer() is None:
        if "HOLDFAST_NEED_PGBOUNCER" in os.environ:
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING, allow_module_level=True)


def pgbouncer_version() -> tuple[int, int]:
    """Of the program that would be started, such as (1, 18)."""
    program = find_pgbouncer()
    if program is None:
        raise ServerError(MISSING)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        raise ServerError(f"{program}: cannot tell its version from {said!r}")
    return int(found[1]), int(found[2])


class PgBouncer:
    """PgBouncer in transaction mode, started on entry and removed on exit.

    Four sessions of the server serve all clients of a database, so that clients do take
    turns in them. `settings` are further lines of its `[pgbouncer]` section.
    """

    def __init__(self, server_port: int, *, settings: Mapping[str, str] | None = None) -> None:
        self._server_port: Final = server_port
        self._settings: Final = dict(settings or {})
        self._owner_pid: Final = os.getpid()
        self._folder: Path | None = None
        self._port: ReservedPort | None = None
        self._process: Postmaster | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Where it listens; 0 while it is stopped."""
        return self._port.number if self._port else 0

    def through(self, url: str) -> str:
        """The URL of the same database, by way of this PgBouncer."""
        return url.replace(f":{self._server_port}/", f":{self.port}/", 1)

    def start(self) -> None:
        """Return when it accepts connections; after `kill()`, on the same port."""
        program = find_pgbouncer()
        if program is None:
            raise ServerError(MISSING)
        if self._folder is None:
            atexit.register(self._stop_at_exit)
            self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
            os.chown(self._folder, *server_user())
        for attempt in itertools.count(1):
            self._port = self._port or ReservedPort()
            process = Postmaster([program, str(self._configured())], ready=_READY)
            if process.wait_until_ready():
                self._process = process
                return
            log = process.log_tail()
            if _PORT_TAKEN not in log or attempt == _PORT_ATTEMPTS:
                raise ServerError(f"PgBouncer did not start\n{log}")
            self._port.release()
            self._port = None

    def kill(self) -> None:
        """End it without warning; it keeps nothing, so `start()` brings all of it back."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)
            self._process = None

    def stop(self) -> None:
        """End it and remove its folder; nothing happens if it is stopped."""
        try:
            self.kill()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder)
                self._folder = None
            if self._port is not None:
                self._port.release()
                self._port = None
            atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        # A forked child inherits this handler, but the process is its parent's.
        if os.getpid() == self._owner_pid:
            self.stop()

    def _configured(self) -> Path:
        """The path of its configuration, written."""
        assert self._folder is not None
        users = self._folder / "users.txt"
        users.write_text('"postgres" ""\n')
        settings = {
            "listen_addr": ADDRESS,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(users),
            "pool_mode": "transaction",
            "default_pool_size": "4",
            "max_client_conn": "500",
            **self._settings,
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        path = self._folder / "pgbouncer.ini"
        path.write_text(
            f"[databases]\n* = host={ADDRESS} port={self._server_port}\n\n[pgbouncer]\n"
            + "\n".join(lines)
            + "\n"
        )
        return path
