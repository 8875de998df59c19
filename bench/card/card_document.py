"""The JSON of a call, written anew after each attempt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Optional

sys.path.append(str(Path(__file__).resolve().parents[1]))

from documents import machine, write_json


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
        if self._path is not None:
            write_json(self._path, {**self._head, **figures})
