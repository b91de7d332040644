"""What can be wrong with a file or a request, as an answer for the reader: an HTTP status and one sentence."""

from __future__ import annotations


class Problem(Exception):
    """`status` is the HTTP status if the whole page is about it; inside a page only the sentence is shown."""

    def __init__(self, message: str, status: int = 404) -> None:
        super().__init__(message)
        self.status = status


class Missing(Problem):
    """Something that no phase of this compile wrote."""


class Indexing(Problem):
    """The index of a large codegen_dir is being made."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)
