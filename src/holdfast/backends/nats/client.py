"""nats-py's client, and how it is told where to connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import SecureConnWantedError

from holdfast.errors import InvalidArgument
from holdfast.url import unknown_option


class SafeClient(Client):
    """nats-py's own would tell the password to a server without TLS, whatever the URL says.

    And one that the server has thrown out might tell nobody, and never be replaced.
    """

    def __init__(self) -> None:
        super().__init__()
        self.take: Callable[[Msg], bool] = lambda _: False
        """Is told of each message as it is read; True if that was all there is to do with it."""

    def _build_message(
        self,
        sid: int,
        subject: bytes,
        reply: bytes,
        data: bytes,
        headers: dict[str, str] | None,
    ) -> Msg | None:
        # An answer is given to who waits right here: a queue and a task of the subscription would
        # cost a turn of the loop for each.
        message: Msg = super()._build_message(sid, subject, reply, data, headers)
        return None if self.take(message) else message

    def _connect_command(self) -> bytes:
        wanted = self._current_server is not None and self._current_server.uri.scheme == "tls"
        if wanted and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - nats-py's
        try:
            await super()._close(status, do_cbs)
        except OSError:
            # What it had still to send met a reset, and it gave up half way: closed, but its tasks
            # are there and nobody has heard of it. Nothing is left to send now.
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)


def connect_options(address: str) -> dict[str, Any]:
    """The address as nats-py's `connect` takes it; the login is for all servers alike."""
    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    if query:
        raise InvalidArgument(f"store URL: {unknown_option(query.partition('&')[0])}")
    login, _, hosts = rest.rstrip("/").rpartition("@")
    if not hosts or "/" in hosts:
        raise InvalidArgument("store URL: wanted nats://host:4222, several with commas between")
    options: dict[str, Any] = {"servers": [f"{scheme}://{host}" for host in hosts.split(",")]}
    user, colon, password = login.partition(":")
    if colon:
        options |= {"user": unquote(user), "password": unquote(password)}
    elif user:
        options["token"] = unquote(user)
    return options
