"""The application: the table of pages, their HTML and JSON forms, the files, and the answers when something is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from mlsdk.cli.dashboard import files, formats, viewers, words
from mlsdk.cli.dashboard.charts import Chart
from mlsdk.cli.dashboard.guard import Guard
from mlsdk.cli.dashboard.pages import (
    accuracy,
    advice,
    builds,
    compare,
    graphs,
    listing,
    logs,
    memory,
    search,
    summary,
    tools,
    traces,
)
from mlsdk.cli.dashboard.problems import Indexing, Problem
from mlsdk.cli.dashboard.sources import newest_of
from mlsdk.cli.dashboard.tables import Table, as_csv
from mlsdk.cli.dashboard.view import Site, View

Function = Callable[[View], dict[str, Any]]


@dataclass(frozen=True)
class Page:
    """`path` is also the name of its `.json`; pages without a `menu` are reached from others."""

    path: str
    title: str
    function: Function
    template: str
    menu: str = ""
    needs: str = "source"  # or "store"


# In the order of the menu: the pages of the original first, then ours.
PAGES = (
    Page("summary", "Summary", summary.summary, "summary", "original"),
    Page("netron", "Netron", graphs.netron, "frame", "original"),
    Page("node", "Node", graphs.node, "node", "original"),
    Page("logs", "Logs", logs.logs, "logs", "original"),
    Page("perfetto", "Perfetto UI", traces.perfetto, "frame", "original"),
    Page("tracing", "Chrome Tracing", traces.tracing, "frame", "original"),
    Page("tools", "HTML Tools", tools.tools, "tools", "original"),
    Page("memory", "Memory", memory.memory, "memory", "more"),
    Page("search", "Search", search.search, "search", "more"),
    Page("compare", "Compare", compare.compare, "compare", "more"),
    Page("accuracy", "Accuracy", accuracy.accuracy, "accuracy", "more"),
    Page("advice", "Advice", advice.advice, "advice", "more"),
    Page("store", "Store", builds.builds, "store", "more", "store"),
    Page("files", "Files", listing.listing, "files", "more"),
    Page("node/view", "Node", graphs.node_view, "node_view"),
    Page("tools/layout", "Layout", tools.layout, "layout"),
)
#: long tables as CSV
SHEETS = {"layers": summary.layers_csv, "nodes": graphs.nodes_csv}

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters.update(shown=formats.shown, printable=lambda value: files.printable(str(value)))
_TEMPLATES.globals.update(urlencode=urlencode)


def application(site: Site, hosts: set[str]) -> Starlette:
    """The dashboard of a site, for requests that name one of `hosts`."""
    pages = [route for page in PAGES for route in _routes(page)]
    inner = [
        *pages,
        *(Route(f"/{name}.csv", _sheet(function)) for name, function in SHEETS.items()),
        Route("/files/{path:path}", _file),
    ]
    routes = [
        Route("/", _home),
        Route("/favicon.ico", _icon),
        Route("/static/{path:path}", viewers.static),
        *(Route(f"/viewer/{name}/{{path:path}}", getattr(viewers, name)) for name in ("netron", "perfetto", "tracing")),
        Mount("/builds/{build}", routes=inner),
        *inner,
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={Problem: _problem, HTTPException: _http, Exception: _bug},
    )
    app.state.site = site
    return app


def _routes(page: Page) -> list[Route]:
    def html(request: Request) -> Response:
        return _html(request, page)

    def twin(request: Request) -> Response:
        return _json(page.function(_view(request, page)))

    return [Route(f"/{page.path}.json", twin), Route(f"/{page.path}", html)]


def _view(request: Request, page: Page | None = None) -> View:
    site: Site = request.app.state.site
    build = request.path_params.get("build")
    language = words.language_of(request.headers.get("accept-language", ""))
    base = f"/builds/{build}" if build else ""
    origin = f"{request.url.scheme}://{request.headers['host']}"
    if page is not None and page.needs == "store":
        return View(site, None, request.query_params, base, language, origin)  # type: ignore[arg-type]
    return View(site, site.source(build), request.query_params, base, language, origin)


def _html(request: Request, page: Page) -> Response:
    status = 200
    try:
        view = _view(request, page)
        data = page.function(view)
        template = page.template
    except Problem as error:
        status, data, template = error.status, {"message": str(error), "troubles": []}, "problem"
    text = _render(request, template, page, data)
    headers = {"refresh": "2"} if status == 503 else {}
    return Response(text, status, headers, "text/html")


def _render(request: Request, template: str, page: Page, data: Mapping[str, Any]) -> str:
    site: Site = request.app.state.site
    build = request.path_params.get("build")
    language = words.language_of(request.headers.get("accept-language", ""))
    t = words.translator(language)
    base = f"/builds/{build}" if build else ""
    title = build or (site.folder.title if site.folder else "")
    return _TEMPLATES.get_template(f"{template}.html").render(
        data,
        t=t,
        lang=language,
        base=base,
        page=page,
        pages=[p for p in PAGES if p.menu and (p.needs != "store" or site.store_place is not None)],
        source_title=title,
        query=dict(request.query_params),
        here=request.url.path,
        twin=f"{base}/{page.path}.json" + (f"?{request.url.query}" if request.url.query else ""),
    )


def plain(value: Any) -> Any:
    """A page's dict as JSON: tables as rows, charts as their numbers, numbers that JSON does not have as null."""
    if isinstance(value, Table):
        return plain(value.as_json())
    if isinstance(value, Chart):
        return plain(value.data)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "__html__"):
        return None  # a picture
    return value


def _json(data: Any, status: int = 200) -> Response:
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False, default=str).replace("<", "\\u003c")
    return Response(text, status, media_type="application/json")


def _sheet(function: Callable[[View], tuple[Any, Any]]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        columns, rows = function(_view(request))
        return Response(as_csv(columns, rows), media_type="text/csv")

    return answer


def _home(request: Request) -> Response:
    """`?label=net/train`: the newest build of that program, as Luigi's visualiser links it; the page Store without one."""
    site: Site = request.app.state.site
    label = request.query_params.get("label", "")
    if label and site.store_place is not None:
        build = newest_of(site.store, label)
        return RedirectResponse(f"/builds/{build}/summary" if build else "/store")
    return RedirectResponse("/summary" if site.folder else "/store")


@lru_cache(1)
def _icon_data() -> bytes:
    return (viewers.STATIC / "icon.svg").read_bytes()


def _icon(_request: Request) -> Response:
    return Response(_icon_data(), media_type="image/svg+xml")


#: suffix -> media type of a file that a browser may show; everything else is a download
SHOWN = {
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".vsm": "text/plain; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".csv": "text/plain; charset=utf-8",
}


def _file(request: Request) -> Response:
    """One artifact as it is stored, or with `?plain=1` decompressed. `name` finds `name.zst` too."""
    view = _view(request)
    name = request.path_params["path"]
    stored = name if name in view.source.entries() else None
    unpack = request.query_params.get("plain") == "1"
    if stored is None and unpack:
        stored = files.stored_name(view.source, name)
    if stored is None:
        view.source.open(name).close()  # says why, with 403 or 404
        raise Problem("there is no such file in this codegen_dir")
    shown = stored.removesuffix(".zst") if unpack else stored
    kind = SHOWN.get(Path(shown).suffix)
    headers = {}
    if kind is None:
        kind = "application/octet-stream"
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{_quoted(Path(shown).name)}"
    if not (unpack and stored.endswith(".zst")):
        headers["content-length"] = str(view.source.entries()[stored].size)
    pieces = files.chunks(view.source, stored, unpack, files.DOWNLOAD_LIMIT)
    first = next(pieces, b"")  # what is damaged from the start is an answer, not a broken connection
    if request.method == "HEAD":
        return Response(b"", headers=headers, media_type=kind)
    return StreamingResponse(_rest(first, pieces, headers.get("content-length")), headers=headers, media_type=kind)


def _rest(first: bytes, pieces: Iterator[bytes], length: str | None) -> Iterator[bytes]:
    """The body; no more than was promised, should the file grow meanwhile."""
    left = int(length) if length is not None else None
    piece: bytes | None = first
    while piece is not None:
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        yield piece
        piece = None if left == 0 else next(pieces, None)


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


_NOWHERE = Page("", "Not found", lambda view: {}, "problem")


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _wrong(request, error.status, str(error), isinstance(error, Indexing))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _wrong(
        request, error.status_code, "there is no such page" if error.status_code == 404 else str(error.detail)
    )


def _bug(request: Request, error: Exception) -> Response:
    return _wrong(request, 500, f"the dashboard failed at this page ({type(error).__name__}); the others go on")


def _wrong(request: Request, status: int, message: str, again: bool = False) -> Response:
    if request.url.path.endswith(".json"):
        return _json({"error": message, "status": status}, status)
    if "/files/" in request.url.path:
        return Response(message + "\n", status, media_type="text/plain")
    text = _render(request, "problem", _NOWHERE, {"message": message, "troubles": []})
    return Response(text, status, {"refresh": "2"} if again else {}, "text/html")
