"""The server: one process, bound to 127.0.0.1, that does not let slow or many clients stand in each other's way."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlsdk.cli.dashboard.app import application
from mlsdk.cli.dashboard.guard import LOOPBACK, hosts_of
from mlsdk.cli.dashboard.view import Site
from mlsdk.errors import MLSDKError

#: seconds in which a client has to have sent its request
REQUEST_TIME = 15
CONNECTIONS = 200
HEADER_BYTES = 1 << 21


class DashboardError(MLSDKError):
    """The dashboard cannot be started."""


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that hangs up on a client that does not finish its request."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_TIME, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if self.cycle is None:
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. DashboardError says who has the port, as far as that can be told."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(CONNECTIONS)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise DashboardError(f"port {port} is in use by {_holder(host, port)}; try --port {port + 1}") from None
        raise DashboardError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return found


def _holder(host: str, port: int) -> str:
    """Another dashboard, or another program."""
    try:
        with socket.create_connection((host, port), timeout=0.5) as asked:
            asked.sendall(f"HEAD /static/style.css HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            answer = asked.recv(2000).decode("latin-1").lower()
    except OSError:
        return "another program"
    return "another dashboard" if "frame-ancestors 'none'" in answer else "another program"


def serve(site: Site, host: str, port: int, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve until interrupted. `ready` is told the address once requests are answered."""
    with listen(host, port) as listening:
        actual = listening.getsockname()[1]
        names = {*LOOPBACK, f"[{host}]" if ":" in host else host}
        config = uvicorn.Config(
            application(site, hosts_of(actual, names)),
            http=TimedProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{actual}")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            site.close()
