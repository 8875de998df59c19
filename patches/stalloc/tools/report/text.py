"""Tables in plain text."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """Columns two blanks apart; those in `text_columns` stand left, the others right. Ends with a newline."""
    cells = [list(header), *([*row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i in text_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]) + "\n"


def width() -> int:
    """Columns of the terminal, at least 60; 100 where there is none."""
    return max(60, shutil.get_terminal_size((100, 24)).columns)


def wrapped(words: str, indent: int = 0) -> str:
    """Broken at blanks to fit the terminal, every line indented by so many blanks; a longer word stays whole."""
    blanks = " " * indent
    return textwrap.fill(
        words, width(), initial_indent=blanks, subsequent_indent=blanks, break_long_words=False, break_on_hyphens=False
    )


def signed(text: str, value: float) -> str:
    return text if value == 0 else f"{'+' if value > 0 else '-'}{text}"
