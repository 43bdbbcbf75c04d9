"""nats-py's client, and how it is told where to connect."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from nats.aio.client import Client
from nats.errors import SecureConnWantedError

from holdfast.errors import InvalidArgument


class SafeClient(Client):
    """nats-py would tell the password to a server without TLS, whatever the URL says."""

    def _connect_command(self) -> bytes:
        wanted = self._current_server is not None and self._current_server.uri.scheme == "tls"
        if wanted and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()


def connect_options(address: str) -> dict[str, Any]:
    """The address as nats-py's `connect` takes it; the login is for all servers alike."""
    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    if query:
        raise InvalidArgument(f"store URL: unknown option {unquote(query.partition('=')[0])!r}")
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
