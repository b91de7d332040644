"""The only place that makes digests: SHA-256, 64 hex digits, never cut.

The digest of an object is the plain SHA-256 of its bytes, so that `sha256sum` of an exported file agrees. The digest of
anything else (a recipe, a remembered answer) starts with its kind, so that two kinds never share a key.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from mlsdk.store.codec import canonical

_DIGEST = re.compile(r"[0-9a-f]{64}")
LENGTH = 64


def of_bytes(data: bytes | bytearray | memoryview) -> str:
    """The digest of an object."""
    return hashlib.sha256(data).hexdigest()


def of_value(kind: str, value: Any) -> str:
    """The digest of a value that has a canonical form."""
    return of_value_bytes(kind, value).hex()


def of_value_bytes(kind: str, value: Any) -> bytes:
    """The same as 32 bytes."""
    return of_text(kind, canonical(value))


def of_text(kind: str, text: bytes) -> bytes:
    """The digest of canonical bytes that were made before."""
    return hashlib.sha256(b"open-mlsdk:" + kind.encode("ascii") + b":1\n" + text).digest()


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
