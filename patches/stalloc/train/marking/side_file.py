"""A file next to a trace, there as a whole or not at all. What cannot be written costs a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from stalloc.core import files, log


class SideFile:
    """`failure`: the warning's words, as "the tokens of experts could not be noted"."""

    def __init__(self, path: Path, failure: str) -> None:
        """Removes what an earlier trace has left."""
        self._path, self._failure = path, failure
        self._guarded(lambda: files.remove(path))

    def write(self, text: str) -> None:
        self._guarded(lambda: files.write_whole(self._path, text.encode()))

    def _guarded(self, access: Callable[[], object]) -> None:
        try:
            access()
        except OSError as error:
            log.warning(f"{self._failure}: {error}")
