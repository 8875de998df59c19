"""`stalloc runs --remove`: removes runs under STALLOC_MODE=Auto that are kept for later starts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Optional

from stalloc.core import run_cache, run_files
from stalloc.core.sizes import size
from stalloc.tools.commands import options
from stalloc.tools.commands.kept_runs import Row, rows_of

EXAMPLES = ("clean --older 30", "clean train-2e3678b6-batch-6", "clean --all --dry-run")

ABOUT = """
A run is kept while a process trains it or a planner works for it. A later start of a program whose run was removed is
traced again.
"""
_SECONDS_OF_DAY = 86400.0


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ABOUT
    parser.add_argument("names", metavar="NAME", nargs="*", help="remove this run, given by name or directory")
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="remove all runs")
    parser.add_argument("--older", metavar="DAYS", type=_days, help="remove runs that were not used for DAYS days")
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed, and remove nothing")


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not days >= 0:
        raise argparse.ArgumentTypeError(f"must be a number of days from 0 on: {text!r}")
    return days


def run(arguments: argparse.Namespace) -> int:
    return remove("clean", arguments.names, arguments)


def remove(command: str, names: list[str], arguments: argparse.Namespace) -> int:
    """Removes runs of these names, and as the arguments of `add_arguments` say."""
    if not names and not arguments.all and arguments.older is None:
        options.refuse(command, "name runs (`stalloc runs` lists them), or pass --older DAYS or --all")
        return 2
    try:
        cache = run_cache.cache_directory(os.environ)
        chosen = _chosen(rows_of(cache), names, arguments.older)
    except (OSError, ValueError) as error:
        return options.refuse(command, error)
    if not arguments.dry_run:
        run_cache.remove_leftovers(cache)
    stayed = [row for row in chosen if not _remove(row, arguments.dry_run)]
    if not chosen:
        print("nothing to remove")
    return 1 if any(_is_named(row, names) for row in stayed) else 0


def _chosen(rows: list[Row], names: list[str], older: Optional[float]) -> list[Row]:
    """ValueError names a run that there is not."""
    for name in names:
        if not any(_is_named(row, [name]) for row in rows):
            raise ValueError(f"no run has the name {name!r}; `stalloc runs` lists them")
    named = [row for row in rows if not names or _is_named(row, names)]
    if older is None:
        return named
    return [row for row in named if row.used <= time.time() - older * _SECONDS_OF_DAY]


def _is_named(row: Row, names: list[str]) -> bool:
    return any(name == row.name or Path(os.path.abspath(name)) == row.directory for name in names)


def _remove(row: Row, dry: bool) -> bool:
    """False: it is in use, or cannot be removed."""
    if row.in_use:
        print(f"{row.name}: in use, it stays", file=sys.stderr)
        return False
    if not dry and not run_files.remove_run(row.directory):
        print(f"{row.name}: in use by now, or it may not be removed; it stays", file=sys.stderr)
        return False
    print(f"{'would remove' if dry else 'removed'} {row.name}, {size(row.bytes)}")
    return True
