"""Real Valkey servers start, survive, and leave nothing behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from holdfast.testing.valkey import ServerError, ValkeyServer

END_SECS = 60

OWNER = """
import sys
from holdfast.testing.valkey import ValkeyServer
server = ValkeyServer()
server.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer({"maxmemory": "64mb"}) as server:
        yield server


def ask(server: ValkeyServer, *command: str | int) -> object:
    with contextlib.closing(server.client()) as client:
        return client.execute_command(*command)


def setting(server: ValkeyServer, name: str) -> object:
    found = ask(server, "CONFIG GET", name)
    assert isinstance(found, dict)
    return found[name]


def test_server_has_the_settings_and_real_durability(server: ValkeyServer) -> None:
    assert setting(server, "appendfsync") == "always"
    assert setting(server, "appendonly") == "yes"
    assert setting(server, "bind") == "127.0.0.1"
    assert setting(server, "maxmemory") == str(64 * 1024 * 1024)


def test_root_runs_the_server_as_another_user(server: ValkeyServer) -> None:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8").splitlines()
    ids = {line.split(":")[0]: line.split(":")[1].split() for line in status}
    assert ("0" in ids["Uid"]) is False or os.getuid() == 0
    if os.getuid() == 0:
        assert "0" not in {*ids["Uid"], *ids["Gid"], *ids["Groups"]}


def test_fresh_urls_are_apart(server: ValkeyServer) -> None:
    first, second = server.fresh_url(), server.fresh_url(pool_size="2")
    assert first != second
    assert second.endswith("&pool_size=2")


def test_restart_and_kill_keep_data_and_port(server: ValkeyServer) -> None:
    port, pid = server.port, server.pid
    ask(server, "SET", "a", 1)
    server.restart()
    ask(server, "SET", "b", 2)
    server.kill()
    with pytest.raises(redis.ConnectionError):
        ask(server, "PING")
    with pytest.raises(ServerError, match="not running"):
        server.kill()
    server.start()
    assert ask(server, "MGET", "a", "b") == [b"1", b"2"]
    assert server.port == port
    assert server.pid != pid


def test_stopped_server_leaves_nothing() -> None:
    with ValkeyServer() as server:
        folder, pid = server.folder, server.pid
        assert folder.is_dir()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    server.stop()


def test_a_server_that_does_not_start_tells_its_log_and_leaves_nothing() -> None:
    server = ValkeyServer({"maxmemory": "nonsense"})
    with pytest.raises(ServerError, match="nonsense"):
        server.start()
    with pytest.raises(ServerError, match="no folder"):
        _ = server.folder


def test_password_is_asked_for() -> None:
    with ValkeyServer({"requirepass": "secret"}) as server:
        assert ":secret@" in server.url()
        assert ask(server, "PING") is True
        with (
            contextlib.closing(redis.Redis("127.0.0.1", server.port)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def test_a_replica_follows_its_primary() -> None:
    with ValkeyServer() as primary, ValkeyServer(replica_of=primary) as replica:
        with contextlib.closing(primary.client()) as client:
            client.set("a", "1")
            while client.wait(1, 10_000) < 1:
                client.set("a", "1")  # it has not connected yet
        assert ask(replica, "GET", "a") == b"1"


def test_a_cluster_of_two_shares_the_slots() -> None:
    with (
        ValkeyServer(cluster=True, slots=range(8000)) as first,
        ValkeyServer(cluster=True, slots=range(8000, 16384)) as second,
    ):
        first.meet(second)
        with pytest.raises(redis.ResponseError, match=str(second.port)):
            ask(first, "GET", "foo")  # slot 12182
        assert ask(second, "GET", "foo") is None


def test_server_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        gone = os.pidfd_open(int(pid))
        try:
            owner.send_signal(signal.SIGKILL)
            ready, _, _ = select.select([gone], [], [], END_SECS)
            assert ready, f"server {pid} outlived its owner"
        finally:
            os.close(gone)
            for left in sorted(Path(folder).rglob("*"), reverse=True):
                left.rmdir() if left.is_dir() else left.unlink()
            Path(folder).rmdir()
