"""The runs whose plans are kept for later starts, as `stalloc runs` lists and removes them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Optional

from stalloc.core import run_cache, run_files

_PLAN = re.compile(r"rank(\d{5,})\.plan")


@dataclasses.dataclass(frozen=True)
class Row:
    """One kept run. Bytes; `used` in seconds since 1970.

    Args:
        known: None where the directory does not say whose it is.
        ranks: that have plans.
    """

    directory: Path
    known: Optional[run_cache.KnownRun]
    used: float
    bytes: int
    ranks: list[int]
    in_use: bool

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def arguments(self) -> list[list[str]]:
        """Its starts, the last one first."""
        return [] if self.known is None else [run_cache.without_secrets(one) for one in self.known.arguments]


def rows_of(cache: Path) -> list[Row]:
    """All kept runs, the one that was used last first."""
    return [_row(used, directory) for used, directory in run_cache.by_use(cache)]


def _row(used: float, directory: Path) -> Row:
    names = [_PLAN.fullmatch(path.name) for path in (directory / "output" / "plan").glob("rank*.plan")]
    return Row(
        directory=directory,
        known=run_cache.read_run(directory),
        used=used,
        bytes=run_cache.bytes_in(directory),
        ranks=sorted(int(name[1]) for name in names if name is not None),
        in_use=run_files.in_use(directory),
    )
