"""Real PostgreSQL servers for tests.

A server lives in a temporary folder and listens on a private port of 127.0.0.1:

    with PostgresServer("18") as server:
        url = server.create_database()

`restart()` and `kill()` keep the data, `stop()` removes it. The settings are the
server's own defaults: an acknowledged commit is on the disk (fsync is on). If the
test process is killed, its servers end too, but their folders stay behind.
"""

import atexit
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from holdfast.testing.ports import ADDRESS, ReservedPort
from holdfast.testing.postmaster import (
    Postmaster,
    ServerError,
    Version,
    run,
    server_user,
    usable_install,
)

__all__ = ["CARELESS", "PostgresServer", "ServerError", "Version"]

_PORT_TAKEN: Final = "could not bind"
_PORT_ATTEMPTS: Final = 5
_STORES_PER_DATABASE: Final = 50

CARELESS: Final = {"fsync": "off", "full_page_writes": "off"}
"""Settings for tests in which no server is killed: hundreds of stores are made much faster."""


class PostgresServer:
    """A PostgreSQL server of its own, started on entry and removed on exit.

    `settings` are further server options: `{"max_connections": "20"}`.
    """

    def __init__(
        self, version: Version = "18", *, settings: Mapping[str, str] | None = None
    ) -> None:
        self.version: Final = version
        self._settings: Final = dict(settings or {})
        self._database_numbers: Final = itertools.count(1)
        self._store_numbers: Final = itertools.count()
        self._stores_in = ""
        self._owner_pid: Final = os.getpid()
        self._folder: Path | None = None
        self._bin = Path()
        self._port: ReservedPort | None = None
        self._postmaster: Postmaster | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running postmaster."""
        return self._running().pid

    @property
    def folder(self) -> Path:
        """The temporary folder that holds everything of this server until `stop()`."""
        if self._folder is None:
            raise ServerError(f"PostgreSQL {self.version} is stopped: it has no folder")
        return self._folder

    def program(self, name: str) -> str:
        """The path of a program that came with the server, such as pg_dump."""
        return str(self._bin / name)

    @property
    def port(self) -> int:
        """Where the server listens; 0 while it is stopped."""
        return self._port.number if self._port else 0

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on this server, for its superuser."""
        return f"postgresql://postgres@{ADDRESS}:{self.port}/{database}"

    def create_database(self) -> str:
        """The URL of a new empty database.

        It costs 0.1 s and 8 MB on an idle machine, several times that on a busy disk:
        tests that can share a database, in namespaces of their own, do better.
        """
        import psycopg

        database = f"test_{next(self._database_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database} TEMPLATE template0".encode())
        return self.url(database)

    def fresh_store(self) -> str:
        """The URL of a new, empty store: in a schema of its own, ten times faster than a database.

        A new database every now and then: thousands of tables in one make everything slow.
        """
        number = next(self._store_numbers)
        if number % _STORES_PER_DATABASE == 0:
            self._stores_in = self.create_database()
        return f"{self._stores_in}?schema=s{number}"

    def start(self) -> None:
        """Return when the server accepts connections; after `kill()`, on the same port.

        A server that does not start is removed, and ServerError tells the end of its log.
        """
        if self._postmaster is not None:
            raise ServerError(f"PostgreSQL {self.version} runs already, as process {self.pid}")
        try:
            if self._folder is None:
                self._install()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its data; nothing happens if it is stopped."""
        try:
            # Immediately, without the checkpoint of an orderly end: it can take seconds,
            # and the data goes anyway.
            self._end(signal.SIGQUIT)
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder)
                self._folder = None
            self._release_port()
            atexit.unregister(self._stop_at_exit)

    def restart(self) -> None:
        """Stop and start the server; open connections are lost, data and port stay."""
        self._running()
        self._end(signal.SIGINT)
        self.start()

    def kill(self) -> None:
        """End the server without warning (SIGKILL) and return when all its processes are gone."""
        self._running()
        self._end(signal.SIGKILL)

    def _running(self) -> Postmaster:
        if self._postmaster is None:
            raise ServerError(f"PostgreSQL {self.version} is not running")
        return self._postmaster

    def _end(self, signal_number: signal.Signals) -> None:
        if self._postmaster is not None:
            self._postmaster.end(signal_number)
            self._postmaster = None

    def _stop_at_exit(self) -> None:
        # A forked child inherits this handler, but the server is its parent's.
        if os.getpid() == self._owner_pid:
            self.stop()

    def _install(self) -> None:
        atexit.register(self._stop_at_exit)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        os.chown(self._folder, *server_user())
        self._bin = usable_install(self.version, self._folder) / "bin"
        where = ["-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust"]
        # Without sync: the still empty cluster need not survive a power loss.
        how = ["-E", "UTF8", "--no-locale", "--no-sync"]
        run([str(self._bin / "initdb"), *where, *how])

    def _launch(self) -> None:
        for attempt in itertools.count(1):
            self._port = self._port or ReservedPort()
            postmaster = Postmaster(self._command())
            if postmaster.wait_until_ready():
                self._postmaster = postmaster
                return
            log = postmaster.log_tail()
            if _PORT_TAKEN not in log or attempt == _PORT_ATTEMPTS:
                raise ServerError(f"PostgreSQL {self.version} did not start\n{log}")
            self._release_port()

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": ADDRESS,
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *options]

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.release()
            self._port = None
