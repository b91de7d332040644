"""What every request has to pass and every answer carries: the Host check, GET and HEAD only, and the headers of a page that
trusts nothing from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADER_LIMIT = 32 * 1024

_OWN = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_VIEWER = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
_UNSAFE = "'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:"

# start of the path (behind the prefix of a build) -> policy; the first that fits
POLICIES: tuple[tuple[str, str], ...] = (
    ("/viewer/netron/", _VIEWER.format(scripts="")),
    ("/viewer/perfetto/", _VIEWER.format(scripts=_UNSAFE)),
    ("/viewer/tracing/", _VIEWER.format(scripts=_UNSAFE)),
    ("/files/", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"),
    ("", _OWN),
)


class Guard:
    """ASGI middleware. `hosts` are the names under which the server may be asked for, with their port."""

    def __init__(self, app: Any, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_headers(send, _policy(scope["path"]))
        refused = self._refused(scope)
        if refused is None:
            await self.app(scope, receive, send)
            return
        status, message, extra = refused
        body = b"" if scope["method"] == "HEAD" else message.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            *extra,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refused(self, scope: Scope) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_LIMIT:
            return 431, "the headers of this request are too large\n", []
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 or given[0].decode("latin-1").lower() not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return 421, f"this server answers to {names}; forward the same port, or open that address\n", []
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "only GET and HEAD\n", [(b"allow", b"GET, HEAD")]
        return None


def hosts_of(port: int, names: Iterable[str] = LOOPBACK) -> set[str]:
    """What may stand in the Host header."""
    return {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())


def _policy(path: str) -> str:
    parts = path.split("/", 3)
    inner = "/" + parts[3] if path.startswith("/builds/") and len(parts) > 3 else path
    return next(policy for start, policy in POLICIES if inner.startswith(start))


def _with_headers(send: Send, policy: str) -> Send:
    fixed = [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", [])) + fixed
            if not any(name == b"cache-control" for name, _value in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return sending
