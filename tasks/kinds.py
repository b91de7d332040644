"""What the value of an option may be: each kind checks one, and says in words what it takes.

A kind is called with the option's name and a value, gives the value as it is kept, and raises OptionError.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mlsdk.errors import OptionError
from mlsdk.tasks import presets
from mlsdk.tasks.near import nearest


class Kind(Protocol):
    """`text` is the type for people, `choices` what it can be when that can be listed."""

    @property
    def text(self) -> str: ...

    @property
    def choices(self) -> tuple[str, ...]: ...

    def __call__(self, name: str, value: Any) -> Any: ...


@dataclass(frozen=True)
class Choice:
    """One of some names. `later`: names of the official MLSDK that this version does not have."""

    choices: tuple[str, ...]
    later: tuple[str, ...] = ()
    text: str = "name"

    def __call__(self, name: str, value: Any) -> str:
        if isinstance(value, str) and value in self.choices:
            return value
        if isinstance(value, str) and value in self.later:
            raise OptionError(f"option {name}: {value!r} is not in this version; available: {', '.join(self.choices)}")
        near = nearest(value, self.choices)
        raise OptionError(f"option {name}: {value!r:.60} is not allowed{near}; give one of {', '.join(self.choices)}")


def _number(value: Any, kind: type[int] | type[float]) -> Any:
    """The number that a text is; everything else as it is."""
    try:
        return kind(value) if isinstance(value, str) else value
    except ValueError:
        return value


@dataclass(frozen=True)
class Fraction:
    """A number from 0 to 1, both included; or its text, as a command line has it."""

    text: str = "number from 0 to 1"
    choices: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> float:
        value = _number(value, float)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise OptionError(f"option {name}: {value!r:.60} is no number; give a number from 0 to 1")
        if not 0 <= value <= 1:
            raise OptionError(f"option {name}: {value!r:.60} is out of range; give a number from 0 to 1")
        return float(value)


@dataclass(frozen=True)
class Count:
    """A whole number, or its text. `automatic`: None and -1 leave it to the compiler."""

    lowest: int
    highest: int
    automatic: bool = False
    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"whole number from {self.lowest} to {self.highest}{', or -1' if self.automatic else ''}"

    def __call__(self, name: str, value: Any) -> int | None:
        value = _number(value, int)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if self.automatic and (value is None or (whole and value == -1)):
            return None if value is None else -1
        if not whole or not self.lowest <= value <= self.highest:
            raise OptionError(f"option {name}: {value!r:.60} is not allowed; give a {self.text}")
        return int(value)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    text: str = "true or false"
    choices: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise OptionError(f"option {name}: {value!r:.60} is not allowed; give true or false")
        return value


@dataclass(frozen=True)
class Path:
    """The path of a file."""

    text: str = "path"
    choices: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> str | None:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if text is None or (isinstance(text, str) and text and "\0" not in text and _is_text(text)):
            return text
        raise OptionError(f"option {name}: {value!r:.60} is no path; give the path of a file")


@dataclass(frozen=True)
class Variables:
    """Environment variables by name."""

    text: str = "names and values"
    choices: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise OptionError(f"option {name}: {value!r:.80} is not allowed; give a mapping of names to values")
        for key, item in value.items():
            if not key or "=" in key or "\0" in f"{key}{item}" or not _is_text(f"{key}{item}"):
                raise OptionError(
                    f"option {name}: {key!r:.60} cannot be set to {item!r:.60}; give a name without = and a text"
                )
            if not isinstance(item, (str, int, float)):
                raise OptionError(f"option {name}: {key} is {type(item).__name__}; give text or a number")
        return {key: item if isinstance(item, str) else json.dumps(item) for key, item in sorted(value.items())}


def _is_text(text: str) -> bool:
    """Whether the operating system can be told it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Entries:
    """A list of objects, or a JSON file with one. What stands in them is checked where it is used."""

    text: str = "path of a JSON file, or a list of objects"
    choices: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> list[dict[str, Any]] | None:
        if value is None:
            return None
        entries = value if isinstance(value, (list, tuple)) else presets.read_json(name, Path()(name, value) or "")
        where = f"option {name}" if entries is value else f"option {name} {value}"
        if not isinstance(entries, (list, tuple)):
            raise OptionError(f"{where}: it holds {type(entries).__name__}; write a list of objects")
        for place, entry in enumerate(entries):
            if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
                raise OptionError(
                    f"{where}: entry {place} is {type(entry).__name__}; write an object of names and values"
                )
        return [dict(entry) for entry in entries]
