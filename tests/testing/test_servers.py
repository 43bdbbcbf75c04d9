"""Real servers start, survive, and leave nothing behind."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.testing import postmaster, servers
from holdfast.testing.ports import ReservedPort
from holdfast.testing.servers import PostgresServer, ServerError, Version

VERSIONS: tuple[Version, ...] = ("18", "16")
END_SECS = 60

OWNER = """
import sys, threading
from holdfast.testing.servers import PostgresServer
server = PostgresServer("18")
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pid, server.folder, server.url(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param, settings={"max_connections": "7"}) as server:
        yield server


def fetch(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def write(url: str, number: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS written (number int)")
        connection.execute("INSERT INTO written VALUES (%s)", [number])


def written(url: str) -> object:
    return fetch(url, "SELECT array_agg(number ORDER BY number) FROM written")


def test_server_has_the_version_the_settings_and_real_durability(server: PostgresServer) -> None:
    url = server.url()
    assert str(fetch(url, "SELECT version()")).startswith(f"PostgreSQL {server.version}.")
    assert fetch(url, "SHOW max_connections") == "7"
    assert fetch(url, "SHOW listen_addresses") == "127.0.0.1"
    assert [fetch(url, f"SHOW {name}") for name in ("fsync", "synchronous_commit")] == ["on", "on"]


def test_root_runs_the_server_as_another_user_and_others_as_themselves(
    server: PostgresServer,
) -> None:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8").splitlines()
    ids = {line.split(":")[0]: line.split(":")[1].split() for line in status}
    if os.getuid() == 0:
        assert "0" not in {*ids["Uid"], *ids["Gid"], *ids["Groups"]}
    else:
        assert ids["Uid"] == [str(os.getuid())] * 4


def test_new_database_is_empty_and_its_own(server: PostgresServer) -> None:
    first, second = server.create_database(), server.create_database()
    write(first, 1)
    assert written(first) == [1]
    assert fetch(second, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


def test_restart_keeps_data_and_port(server: PostgresServer) -> None:
    url, port, pid = server.create_database(), server.port, server.pid
    write(url, 1)
    server.restart()
    write(url, 2)
    assert written(url) == [1, 2]
    assert server.port == port
    assert server.pid != pid


def test_killed_server_recovers_what_was_committed_and_only_that(server: PostgresServer) -> None:
    url, port = server.create_database(), server.port
    write(url, 1)
    with psycopg.connect(url, autocommit=True) as unfinished:
        unfinished.execute("BEGIN")
        unfinished.execute("INSERT INTO written VALUES (99)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            unfinished.execute("COMMIT")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
    server.start()
    write(url, 2)
    assert written(url) == [1, 2]
    assert server.port == port


def test_stopped_server_leaves_nothing() -> None:
    with PostgresServer("18") as server:
        folder, pid = server.folder, server.pid
        assert (folder / "data").is_dir()
        backend = fetch(server.url(), "SELECT pg_backend_pid()")
    assert not folder.exists()
    assert not [pid for pid in (pid, backend) if Path(f"/proc/{pid}").exists()]
    server.stop()


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "_PACKAGE", "package_that_nobody_has")
    with pytest.raises(ServerError, match=r"pip install 'holdfast\[testing\]'"):
        PostgresServer("18").start()


def test_environment_that_the_server_user_cannot_enter_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = postmaster.usable_install("18", tmp_path).parent
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        # Links suffice: what is tested is whether the folder above them can be entered.
        shutil.copytree(folder, hidden / folder.name, copy_function=link_or_copy)
    monkeypatch.syspath_prepend(hidden)
    with PostgresServer("18") as server:
        program = Path(f"/proc/{server.pid}/exe").resolve()
        assert fetch(server.url(), "SELECT 1") == 1
        assert program.is_relative_to(server.folder if os.getuid() == 0 else hidden)


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def test_server_that_cannot_start_tells_its_log_and_leaves_nothing() -> None:
    server = PostgresServer("18", settings={"shared_buffers": "plenty"})
    with pytest.raises(ServerError, match='invalid value for parameter "shared_buffers": "plenty"'):
        server.start()
    with pytest.raises(ServerError, match="has no folder"):
        _ = server.folder


def test_port_lost_to_another_program_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    server = PostgresServer("18")
    attempts: list[int] = []

    def lose_the_first_race() -> ReservedPort:
        port = ReservedPort()
        if not attempts:
            # Taken by another before the server came.
            port.number = winner.getsockname()[1]  # type: ignore[misc]
        attempts.append(port.number)
        return port

    monkeypatch.setattr(servers, "ReservedPort", lose_the_first_race)
    with socket.create_server(("127.0.0.1", 0)) as winner, server:
        assert attempts == [winner.getsockname()[1], server.port]
        assert fetch(server.url(), "SELECT 1") == 1


@pytest.mark.parametrize("ending", ["killed", "exits"])
def test_server_ends_with_the_process_that_started_it(ending: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder, url = owner.stdout.readline().split()
        server_process = os.pidfd_open(int(pid))
        # The thread that started the server has ended: that alone must not end the server.
        assert fetch(url, "SELECT 1") == 1
        if ending == "killed":
            owner.send_signal(signal.SIGKILL)
        else:
            owner.communicate()
    ended, _, _ = select.select([server_process], [], [], END_SECS)
    os.close(server_process)
    assert ended, "the server outlived its owner"
    assert Path(folder).exists() == (ending == "killed")
    shutil.rmtree(folder, ignore_errors=True)
