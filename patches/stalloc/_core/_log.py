"""Lines for the user, on stderr, each in one write so that ranks do not mix within a line."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from stalloc._core._config import rank_text


def rank() -> str:
    """This process's rank, 0 outside of a launcher."""
    return rank_text(os.environ) or "0"


def in_colour(stream: TextIO) -> bool:
    """Where a person reads it on a terminal that has colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def line(text: str) -> None:
    """Writes `[stalloc] rank R text`."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(f"[stalloc] rank {rank()} {text}\n")
        stream.flush()
    except (OSError, ValueError):
        pass  # a closed stderr must not end a training run


def warning(text: str) -> None:
    """Says what is lost and why; the run goes on."""
    line(f"warning: {text}")


def error(text: str) -> None:
    """Says what failed; used where an exception would end a run that can go on."""
    line(f"error: {text}")
