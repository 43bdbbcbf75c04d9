"""How a store on NATS connects, loses its server and finds it again."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from nats.aio.client import Client

import holdfast
from holdfast import StoreConfig
from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.errors import NotSent, api_error
from holdfast.backends.nats.stream import Stream
from holdfast.sync.store import Store
from holdfast.testing.freezing import freeze
from holdfast.testing.nats import NatsServer
from holdfast.testing.ports import ADDRESS, ReservedPort

SHORT = StoreConfig(call_timeout=0.5, connect_timeout=2)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "nats" in thread.name]


async def open_and_close(url: str) -> None:
    await (await holdfast.open_async(url, config=SHORT)).close()


@pytest.mark.parametrize("login", ["", "user:wrong@", "token@"])
def test_wrong_login_is_unauthorized(login: str) -> None:
    with NatsServer(user="user", password="right%21") as server:  # noqa: S106 - of a test server
        url = f"nats://{login}{server.address}"
        with pytest.raises(holdfast.Unauthorized, match="Authorization Violation") as caught:
            holdfast.open(url, config=SHORT)
        assert "wrong" not in str(caught.value)
        with pytest.raises(holdfast.Unauthorized):
            asyncio.run(open_and_close(url))
        assert threads() == []


def test_right_login_is_let_in() -> None:
    with (
        NatsServer(user="us:er", password="p@ss/word") as server,  # noqa: S106 - of a test server
        holdfast.open(f"nats://us%3Aer:p%40ss%2Fword@{server.address}", config=SHORT) as store,
    ):
        store.ping()


def test_what_the_server_does_not_permit_is_unauthorized() -> None:
    permissions = {"publish": {"deny": ["t1.records.default.Forbidden.>"]}}
    user = {"user": "u", "password": "p", "permissions": permissions}
    with (
        NatsServer({"authorization": {"users": [user]}}, user="u", password="p") as server,  # noqa: S106 - of a test server
        holdfast.open(server.fresh_url(), config=SHORT) as store,
    ):
        store.records.put("allowed", {"x": 1})
        with pytest.raises(holdfast.Unauthorized, match="permissions violation") as caught:
            store.records.put("Forbidden.a", {"x": 1})
        assert not caught.value.outcome_unknown
        assert store.records.get_field("allowed", "x") == b"1"


def test_tls_is_not_given_up_for_a_server_without_it() -> None:
    with NatsServer(user="user", password="secret") as server:  # noqa: S106 - of a test server
        url = server.url().replace("nats://", "tls://")
        with pytest.raises(holdfast.Unavailable, match="secure connection not available"):
            holdfast.open(url, config=SHORT)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where the server can read, which may run as another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_server_with_tls_must_show_a_certificate_that_is_trusted(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = own_certificate(open_folder)
    settings = {"tls": {"cert_file": certificate, "key_file": key}}
    monkeypatch.setattr(NatsServer, "answers", lambda _: True)  # which does not speak TLS
    with NatsServer(settings) as server:
        url = server.fresh_url().replace("nats://", "tls://")
        with pytest.raises(holdfast.Unavailable, match=r"(?i)certificate"):
            holdfast.open(url, config=SHORT)
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        with holdfast.open(url) as store:
            assert store.cells.set("x", 1) == 1


def own_certificate(folder: Path) -> tuple[str, str]:
    """The files of a certificate for 127.0.0.1, which signs itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(ADDRESS))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "server.crt", folder / "server.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files[1].write_bytes(secret)
    return str(files[0]), str(files[1])


def test_nobody_there_is_unavailable_and_leaves_no_thread(
    capfd: pytest.CaptureFixture[str],
) -> None:
    port = ReservedPort()
    url = f"nats://{ADDRESS}:{port.number}"
    with pytest.raises(holdfast.Unavailable, match=str(port.number)):
        holdfast.open(url, config=SHORT)
    with pytest.raises(holdfast.Unavailable):
        asyncio.run(open_and_close(url))
    port.release()
    assert threads() == []
    assert capfd.readouterr() == ("", "")


def test_one_of_several_servers_is_enough(server: NatsServer) -> None:
    port = ReservedPort()
    with holdfast.open(f"nats://{ADDRESS}:{port.number},{server.address}?bucket=several") as store:
        store.ping()
    port.release()


@pytest.mark.parametrize(
    ("url", "words"), [("?surprise=1", "unknown option 'surprise'"), ("/folder", "wanted nats://")]
)
def test_strange_urls_are_refused(server: NatsServer, url: str, words: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match=words):
        holdfast.open(f"nats://{server.address}{url}")


def test_server_without_jetstream_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NatsServer, "answers", lambda _: True)
    with (
        NatsServer({"jetstream": {"enabled": False}}) as server,
        pytest.raises(holdfast.StoreError, match="JetStream"),
    ):
        holdfast.open(server.fresh_url(), config=SHORT)


def test_more_replicas_than_servers_are_refused(server: NatsServer) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="replicas"):
        holdfast.open(server.fresh_url(replicas="3"))


def test_without_migrate_the_stream_must_be_there(server: NatsServer) -> None:
    url = server.fresh_url()
    with pytest.raises(holdfast.InvalidState, match="migrate"):
        holdfast.open(url, config=StoreConfig(migrate=False))
    holdfast.migrate(url)
    with holdfast.open(url, config=StoreConfig(migrate=False)) as store:
        store.records.put("a", {"x": 1})


def test_close_ends_the_private_thread(server: NatsServer) -> None:
    store = holdfast.open(server.fresh_url())
    assert threads() == ["holdfast nats"]
    watch = store.records.watch()
    watch.next(5)
    store.close()
    assert threads() == []
    with pytest.raises(holdfast.StoreClosed):
        store.records.get("a")
    with pytest.raises(holdfast.StoreClosed):
        watch.next(5)


def test_an_outage_is_unavailable_and_then_it_works_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with NatsServer() as server, holdfast.open(server.fresh_url(), config=SHORT) as store:
        store.records.put("a", {"x": 1})
        server.kill()
        for call in (
            lambda: store.records.get("a"),
            lambda: store.records.put("a", {"x": 2}),
            lambda: store.cells.set("c", 1),
            lambda: list(store.records.scan()),
            store.ping,
        ):
            with pytest.raises(holdfast.Unavailable) as caught:
                call()
            assert not caught.value.outcome_unknown
        server.start()
        assert wait_for(store) == b"1"
        store.records.put("a", {"x": 3})
        assert store.cells.set("c", 1) == 1
    assert capfd.readouterr() == ("", "")


def wait_for(store: Store) -> bytes | None:
    """The field, as soon as the store answers again."""
    for _ in range(50):
        try:
            return store.records.get_field("a", "x")
        except holdfast.Unavailable:
            continue
    pytest.fail("the store did not find its server again")


def test_calls_wait_for_a_server_that_restarts() -> None:
    with NatsServer() as server, holdfast.open(server.fresh_url()) as store:
        store.records.put("a", {"x": 0})
        restart = threading.Thread(target=server.restart)
        restart.start()
        for number in range(1, 200):
            store.records.put("a", {"x": number})
            assert store.records.get_field("a", "x") == b"%d" % number
        restart.join()
        store.records.put("a", {"x": "after"})
        assert store.records.get_field("a", "x") == b"after"


def test_a_watch_goes_on_after_a_restart() -> None:
    with NatsServer() as server, holdfast.open(server.fresh_url()) as store:
        watch = store.records.watch()
        assert watch.next(5) is holdfast.CAUGHT_UP
        server.restart()
        store.records.put("a", {"x": 1})
        change = watch.next(20)
        assert isinstance(change, holdfast.RecordChange)
        assert change.key == "a"


def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    with NatsServer() as server, holdfast.open(server.fresh_url(), config=SHORT) as store:
        store.records.put("a", {"x": 1})
        freeze(server.pid)
        try:
            with pytest.raises(holdfast.Timeout) as caught:
                store.records.get("a")
            assert not caught.value.outcome_unknown
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert wait_for(store) == b"1"


def test_a_client_that_the_server_threw_out_is_replaced() -> None:
    # What is too long for the server's control line ends nats-py's client for good.
    with (
        NatsServer({"max_control_line": 512}) as server,
        holdfast.open(server.fresh_url(), config=SHORT) as store,
    ):
        store.records.put("a", {"x": 1})
        with pytest.raises((holdfast.Timeout, holdfast.Unavailable)):
            store.records.put("k" * 1000, {"x": 1})
        assert wait_for(store) == b"1"
        store.records.put("a", {"x": 2})


def test_a_client_whose_last_words_meet_a_reset_is_replaced(server: NatsServer) -> None:
    async def scene() -> None:
        connection = Connection(server.url(), SHORT)
        await connection.open()
        client = connection._client  # noqa: SLF001 - which the server throws out
        assert client is not None

        async def reset() -> None:
            raise ConnectionResetError

        client._transport.drain = reset  # type: ignore[union-attr, method-assign] # noqa: SLF001
        client._pending = [b"PING\r\n"]  # noqa: SLF001
        client._pending_data_size = 6  # noqa: SLF001
        try:
            await client._close(Client.CLOSED)  # noqa: SLF001 - as an error of the server does
            await connection.ready(asyncio.get_running_loop().time() + 30)
            assert connection._client is not client  # noqa: SLF001
            await connection.ask("$JS.API.INFO", b"", patience=30)
        finally:
            await connection.close()

    asyncio.run(scene())


def test_many_threads_share_a_store(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.records.put("sum", {"n": 0})
        store.cells.init("sum", 0)

        def work(number: int) -> None:
            for step in range(10):
                store.records.put(f"t{number}.{step}", {"n": step})
                while True:
                    found = store.records.get_field("sum", "n")
                    assert found is not None
                    if store.records.compare_and_swap("sum", "n", found, int(found) + 1):
                        break

        workers = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert store.records.get_field("sum", "n") == b"160"
        assert len(list(store.records.scan("t"))) == 160
        assert threads() == ["holdfast nats"]


def test_concurrent_writes_are_under_way_together(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = asyncio.Barrier(10)
    publish = Stream.publish

    async def publish_with_others(self: Stream, message: Message, patience: float) -> int:
        async with asyncio.timeout(20):
            await together.wait()  # for ever, if one waited for another
        return await publish(self, message, patience)

    async def main() -> None:
        async with holdfast.open_async(server.fresh_url()) as store:
            monkeypatch.setattr(Stream, "publish", publish_with_others)
            await asyncio.gather(*(store.records.put(f"k{n}", {"x": n}) for n in range(10)))

    asyncio.run(main())


def test_a_peer_that_is_away_for_a_moment_is_waited_for() -> None:
    """Enough servers, but not all of them there: asked again; too few for ever: a wrong setting."""
    away = {"code": 400, "err_code": 10005}
    text = "no suitable peers for placement"
    assert isinstance(api_error({**away, "description": f"{text}, peer offline"}, "x"), NotSent)
    wrong = api_error({**away, "description": f"{text}, insufficient storage"}, "x")
    assert isinstance(wrong, holdfast.InvalidArgument)
