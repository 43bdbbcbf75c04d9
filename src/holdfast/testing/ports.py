"""Ports for servers that tests start."""

import socket
import sys
from typing import Final

ADDRESS: Final = "127.0.0.1"


class ReservedPort:
    """A free port, kept from others while its server is down.

    On Linux a bound socket that does not listen keeps the port, and admits a server that
    sets SO_REUSEADDR, as PostgreSQL and PgBouncer do. Elsewhere the port is free for a
    moment; a server that loses this race tries another one.
    """

    def __init__(self) -> None:
        self._socket: Final = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((ADDRESS, 0))
        self.number: Final[int] = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()

    def release(self) -> None:
        """Give it up."""
        self._socket.close()
