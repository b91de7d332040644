"""What a page gets: the source that it is about, its index, and what the request asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from mlsdk.cli.dashboard import files
from mlsdk.cli.dashboard.index import Index, Indexes
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.sources import Build, Folder, Source, build_of, open_store
from mlsdk.cli.dashboard.tables import Asked

if TYPE_CHECKING:
    from mlsdk.store import Store

T = TypeVar("T")

BUILDS_KEPT = 64


@dataclass
class Site:
    """Everything that one server shows. `others` are further folders, for comparing."""

    folder: Folder | None = None
    others: tuple[Folder, ...] = ()
    store_place: str | None = None
    indexes: Indexes = field(default_factory=Indexes)
    _store: Any = None
    _builds: dict[str, Build] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        if self.store_place is None:
            raise Missing("the dashboard was started without --store")
        if self._store is None:
            self._store = open_store(self.store_place)
        found: Store = self._store
        return found

    def source(self, build: str | None) -> Source:
        """The source behind a path's prefix: the folder itself, or a build written `12` or `12.1`."""
        if build is None:
            if self.folder is None:
                raise Missing("no codegen_dir was given; choose a build of the store")
            return self.folder
        found = self._builds.get(build)
        if found is None:  # what a build was does not change any more
            found = build_of(self.store, build)
            if len(self._builds) >= BUILDS_KEPT:
                self._builds.clear()
            self._builds[build] = found
        return found

    def named(self, name: str) -> Source:
        """A source that can be compared: `dir`, `dir1`, .. for the folders, `build:12.1` for builds."""
        folders = {"dir": self.folder, **{f"dir{i}": other for i, other in enumerate(self.others, 1)}}
        if name.startswith("build:"):
            return self.source(name.removeprefix("build:"))
        found = folders.get(name)
        if found is None:
            raise Problem("there is nothing of that name to compare")
        return found

    def close(self) -> None:
        self.indexes.close()
        if self._store is not None:
            self._store.close()


@dataclass
class View:
    """One request, as far as a page has to know. `base` is the prefix of links: empty, or `/builds/12.1`."""

    site: Site
    source: Source
    query: Mapping[str, str]
    base: str = ""
    language: str = "en"
    origin: str = ""

    @property
    def index(self) -> Index:
        return self.site.indexes.of(self.source)

    def asked(self, prefix: str = "") -> Asked:
        return Asked.of(self.query, prefix)

    def document(self, name: str) -> dict[str, Any]:
        return files.mapping(self.source, name)

    @property
    def options(self) -> Mapping[str, Any]:
        return options_of(self.source)

    @property
    def is_build(self) -> bool:
        return isinstance(self.source, Build)


def options_of(source: Source) -> Mapping[str, Any]:
    """The options of a compile: of option.json, or of a build those in the keys of its phases."""
    if isinstance(source, Build):
        return source.options
    found: Mapping[str, Any] = files.mapping(source, "option.json")["options"]
    return found


def attempt(troubles: list[str], action: Callable[[], T]) -> T | None:
    """A part of a page: its result, or None and one sentence in `troubles`. The rest of the page goes on."""
    try:
        return action()
    except Problem as error:
        if error.status == 503:
            raise
        troubles.append(str(error))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        troubles.append(f"a file does not have the form that was expected ({type(error).__name__}: {error})")
    return None
