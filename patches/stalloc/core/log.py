"""Lines for the user, on stderr, each in one write so that ranks do not mix within a line.

STALLOC_LOG_LEVEL is the least severity that is printed. Information is rank 0's alone. Of a warning or an error that
several ranks of a launch have on one machine, only the first is printed (alike.py). At level debug every rank prints
everything.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from stalloc.core import alike
from stalloc.core.config import LOG_LEVEL, LOG_LEVELS, ConfigError, parse_log_level, rank_text

_silent = False


def rank() -> str:
    """This process's rank, 0 outside of a launcher."""
    return rank_text(os.environ) or "0"


def in_colour(stream: TextIO) -> bool:
    """Where a person reads it on a terminal that has colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def silence() -> None:
    """Prints nothing from now on: the program has ended."""
    global _silent
    _silent = True


def level() -> str:
    """The level in the environment; "info" if it is unknown, which the run's start reports."""
    try:
        return parse_log_level(os.environ.get(LOG_LEVEL, ""))
    except ConfigError:
        return "info"


def debug(text: str) -> None:
    """Prints a line of every rank."""
    _write("debug", text)


def info(text: str) -> None:
    """What the run came to, or that it is planned: of rank 0."""
    if rank() == "0" or level() == "debug":
        _write("info", text)


def figures(text: str) -> None:
    """Prints a line that was requested, of every rank."""
    _write("info", text)


def warning(text: str) -> None:
    """Says what is lost and why; the run goes on."""
    if _speaks(text):
        _write("warning", f"warning: {text}")


def error(text: str) -> None:
    """Says what failed; used where an exception would end a run that can go on."""
    if _speaks(text):
        _write("error", f"error: {text}")


def fatal(text: str) -> None:
    """Why the program ends: whatever the level, as python prints exceptions."""
    _print(f"error: {text}")


def _speaks(text: str) -> bool:
    own = rank_text(os.environ)
    return not own or level() == "debug" or alike.is_first(text, os.environ)


def _write(severity: str, text: str) -> None:
    if not _silent and LOG_LEVELS.index(severity) >= LOG_LEVELS.index(level()):
        _print(text)


def _print(text: str) -> None:
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(f"[stalloc] rank {rank()} {text}\n")
        stream.flush()
    except (OSError, ValueError):
        pass  # a closed stderr must not end a training run
