"""`stalloc runs`: runs under STALLOC_MODE=Auto whose plans are kept for later starts."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import time
from typing import Any, Optional

from stalloc.core import run_cache, run_signature
from stalloc.core.sizes import size
from stalloc.tools.commands import clean, many_ranks, options
from stalloc.tools.commands.kept_runs import Row, rows_of

EXAMPLES = ("runs", "runs train --json", "runs --remove train-2e3678b6-batch-6", "runs --remove --older 30 --dry-run")

_EPILOG = """
Kept runs lie in ~/.cache/stalloc/runs, or in XDG_CACHE_HOME. A start uses the plan of the run that makes the
same requests, whatever its arguments; the list shows those of its last start. `stalloc status` shows more of a
run's directory. With --remove each WORD is the name or directory of a run.
"""
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG + clean.ABOUT
    parser.add_argument("words", metavar="WORD", nargs="*", help="list only runs whose name or program contains WORD")
    options.add_json(parser)
    parser.add_argument("--remove", action="store_true", help="remove these runs")
    clean.add_arguments(parser)
    parser.set_defaults(parser=parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.remove and not arguments.json:
        return clean.remove("runs --remove", arguments.words, arguments)
    if arguments.remove or arguments.all or arguments.dry_run or arguments.older is not None:
        arguments.parser.error("--all, --older and --dry-run need --remove, and that goes without --json")
    try:
        cache = run_cache.cache_directory(os.environ)
    except OSError as error:
        return options.refuse("runs", error)
    rows = [row for row in rows_of(cache) if all(_has(row, word) for word in arguments.words)]
    if arguments.json:
        print(json.dumps({"directory": str(cache), "runs": [_as_json(row) for row in rows]}, indent=1))
    elif rows:
        print("\n".join(_lines(rows)))
    else:
        print(f"no runs in {cache}")
    return 0


def _has(row: Row, word: str) -> bool:
    return word in row.name or (row.known is not None and word in row.known.path)


def _lines(rows: list[Row]) -> list[str]:
    """By programs, that of the last run first."""
    programs: dict[str, list[Row]] = {}
    for row in rows:
        programs.setdefault("of an earlier version" if row.known is None else row.known.path, []).append(row)
    width = max(len(row.name) for row in rows)
    lines = []
    for program, ones in programs.items():
        lines.append(program)
        for row in ones:
            facts = ", ".join([_requests(row), f"{size(row.bytes)} on disk", _age(row.used)])
            lines.append(f"  {row.name:<{width}}  {facts}{', in use' if row.in_use else ''}")
            if row.arguments:
                lines.append(f"  {'':<{width}}  {shlex.join(row.arguments[0]) or 'no arguments'}")
    return lines


def _requests(row: Row) -> str:
    """The requests of an iteration, for the ranks that have plans."""
    if not row.ranks:
        return "no plan yet"
    ranks = "" if row.ranks == [0] else f" of rank {many_ranks.listed(row.ranks)}"
    signatures = [one for one in (_signature(row, rank) for rank in row.ranks) if one is not None]
    if not signatures:
        return f"plan{ranks}"
    requests = many_ranks.ranged([one["requests"] for one in signatures], "{:.0f}".format)
    growth = many_ranks.ranged([one["growth_bytes"] for one in signatures], size)
    return f"plan{ranks} for {requests} requests an iteration, which grows by {growth}"


def _signature(row: Row, rank: int) -> Optional[dict[str, Any]]:
    try:
        found = run_signature.read_signature(row.directory, rank)
    except ValueError:
        return None
    if found is None:
        return None
    return {
        "rank": rank,
        "device": found.device,
        "requests": found.steady.requests,
        "requested_bytes": found.steady.bytes,
        "growth_bytes": found.steady.growth,
        "set_up_bytes": found.set_up.bytes,
        "order": found.steady.order,
    }


def _age(used: float) -> str:
    seconds = max(0.0, time.time() - used)
    for length, name in _UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"used {count} {name}{'' if count == 1 else 's'} ago"
    return "used just now"


def _as_json(row: Row) -> dict[str, Any]:
    known = row.known
    return {
        "name": row.name,
        "directory": str(row.directory),
        "program": None if known is None else known.path,
        "torch": None if known is None else known.torch,
        "arguments": row.arguments,
        "ranks": row.ranks,
        "signatures": [one for one in (_signature(row, rank) for rank in row.ranks) if one is not None],
        "bytes": row.bytes,
        "used": datetime.datetime.fromtimestamp(row.used, datetime.timezone.utc).isoformat(timespec="seconds"),
        "in_use": row.in_use,
    }
