"""The JSON of a call, written anew after each attempt, and its table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

sys.path.append(str(Path(__file__).resolve().parents[1]))

from compare_modes import machine


class Document:
    """Without --json nothing is written."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._path: Optional[Path] = chosen.json
        options = {name: value for name, value in vars(chosen).items() if name not in ("program", "json", "directory")}
        self._head = {
            "figure": chosen.figure,
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "program": chosen.program,
            "options": options,
            "machine": machine(),
        }

    def write(self, **figures: Any) -> None:
        """All there is so far; what was written before stays whole until this is."""
        if self._path is None:
            return
        partial = self._path.with_name(f"{self._path.name}.tmp")
        partial.write_text(json.dumps({**self._head, **figures}, indent=1))
        partial.replace(self._path)


def cell(value: Optional[float], scale: float, digits: int) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def print_rows(lines: Sequence[Sequence[str]]) -> None:
    """The first line is the header."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths)))
