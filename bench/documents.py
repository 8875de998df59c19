"""What benches write: JSON that is whole at any time, the machine that it is of, and tables."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

GIB = float(1 << 30)


def write_json(path: Path, document: Any) -> None:
    """What was there before stays whole until this is."""
    partial = path.with_name(f"{path.name}.tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def machine() -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_count": str(os.cpu_count()),
    }


def cell(value: Optional[float], scale: float, digits: int) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def aligned(lines: Sequence[Sequence[str]], markdown: bool = False) -> str:
    """A table; the first line is its header."""
    rows = [list(line) for line in lines]
    if markdown:
        rows.insert(1, ["---"] * len(rows[0]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    found = [[text.rjust(width) for text, width in zip(row, widths)] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" if markdown else "  ".join(row) for row in found)
