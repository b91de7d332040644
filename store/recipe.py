"""What a result depends on, and nothing else. The digest of a recipe is the key of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mlsdk.store import codec
from mlsdk.store import digest as digests

SCHEMA = 1


@dataclass(frozen=True)
class Recipe:
    """phase and its version, the options that can change its output, the digests of its inputs by name, the tools."""

    phase: str
    version: int
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The canonical text: what is hashed, stored and compared."""
        parts = {
            "schema": SCHEMA,
            "phase": self.phase,
            "version": self.version,
            "options": dict(self.options),
            "inputs": dict(self.inputs),
            "tools": dict(self.tools),
        }
        return codec.canonical(parts).decode("ascii")

    @cached_property
    def digest(self) -> str:
        return digest_of_text(self.text)

    @classmethod
    def from_text(cls, text: str) -> Recipe:
        parts = codec.decode(text)
        return cls(parts["phase"], parts["version"], parts["options"], parts["inputs"], parts["tools"])


def digest_of_text(text: str) -> str:
    return digests.of_text("recipe", text.encode("ascii")).hex()


@dataclass(frozen=True)
class Change:
    """One part of a key that differs. `before` or `after` is None where the part was absent."""

    part: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.part}: {_shown(self.before)} -> {_shown(self.after)}"


def changes(before: str, after: str) -> list[Change]:
    """Which parts differ between two canonical texts, in the order of a reader's interest."""
    old, new = codec.decode(before), codec.decode(after)
    found = [Change(part, old[part], new[part]) for part in ("phase", "version") if old[part] != new[part]]
    for group, word in (("options", "option"), ("inputs", "input"), ("tools", "tool")):
        for name in sorted(old[group].keys() | new[group].keys()):
            one, other = old[group].get(name), new[group].get(name)
            # 1 == 1.0 == True in Python, and not in a key.
            if (name in old[group]) != (name in new[group]) or codec.canonical(one) != codec.canonical(other):
                part = name if (word, name) == ("tool", "artifacts") else f"{word} {name}"
                found.append(Change(part, one, other))
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else repr(value)
    if digests.is_digest(text):
        return text[:12]
    return text if len(text) <= 60 else text[:57] + "..."
