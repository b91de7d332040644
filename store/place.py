"""Where a store is: a folder, or an index in PostgreSQL with the files in a folder that all share or behind a URL.

    /data/store                                                          a folder, with no server
    postgresql://user@host/database?objects=/shared/store                index there, files in a shared folder
    postgresql://user@host/database?schema=team&objects=s3://bucket/path files in an object store, by fsspec

`objects=` stands last: all that follows is the folder or the URL. The tables stand in the database's schema `schema`,
by default `mlsdk`. What fsspec needs (credentials, AWS_ENDPOINT_URL) comes from the environment or its own files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlsdk.store.errors import BadName, StoreError

_PATTERN = re.compile(r"postgresql://(?P<database>[^?]*)\?(?P<more>(?:[^&]*&)*)objects=(?P<files>.+)")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_EXAMPLE = "write postgresql://user@host/database?objects=FOLDER-OR-URL, or the path of a folder"


@dataclass(frozen=True)
class Address:
    """A store on a database server."""

    database: str  # a URL for SQLAlchemy
    schema: str
    files: str  # a folder or a URL

    @classmethod
    def parse(cls, text: str) -> Address:
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise StoreError(f"MLSDK_STORE={_without_password(text)}: this is no store; {_EXAMPLE}")
        schema, rest = "mlsdk", []
        for part in match["more"].split("&"):
            name, _equals, value = part.partition("=")
            if name == "schema":
                schema = value
            elif part:
                rest.append(part)
        if not _SCHEMA.fullmatch(schema):
            raise BadName(f"schema={schema!r:.80}: use lower-case letters, digits and _")
        query = f"?{'&'.join(rest)}" if rest else ""
        return cls(f"postgresql+psycopg://{match['database']}{query}", schema, match["files"])

    def is_dir(self) -> bool:
        """True: whether it is there is said when it is opened."""
        return True

    def absolute(self) -> Address:
        return self

    def __str__(self) -> str:
        database = _without_password(self.database.replace("postgresql+psycopg", "postgresql"))
        mark = "&" if "?" in database else "?"
        return f"{database}{mark}schema={self.schema}&objects={self.files}"


def location(path: str | os.PathLike[str] | Address | None = None) -> Path | Address:
    """Where the store is: at `path`, else at $MLSDK_STORE, else in ~/.cache/open-mlsdk."""
    if isinstance(path, Address):
        return path
    text = os.fspath(path) if path is not None else os.environ.get("MLSDK_STORE", "")
    if "\0" in text:
        raise BadName("the path of the store holds a NUL; give another path")
    if "://" in text:
        return Address.parse(text)
    return Path(text).expanduser() if text else Path.home() / ".cache" / "open-mlsdk"


def _without_password(text: str) -> str:
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", text)
