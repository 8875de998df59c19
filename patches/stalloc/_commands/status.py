"""`stalloc status`: how far runs under STALLOC_MODE=Auto are, or came."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from stalloc import _run_cache
from stalloc._commands import many_ranks
from stalloc._core._report import size

HELP = "show how far a run under STALLOC_MODE=Auto is: its stages, with their times, of each rank"
EXAMPLES = ("status run1",)

_EPILOG = """
Without DIR: of STALLOC_MODEL_INFO_PATH, else of the run that was started last of those whose plans are in the cache.
Of more than eight ranks: how many are at which stage, and what they say of it, from the least to the most; --rank R has
one's own way.
"""
_HEAD = ("stage", "after_seconds", "iterations")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("dir", metavar="DIR", nargs="?", type=Path, help="directory of the run")
    parser.add_argument("--rank", type=int, metavar="R", help="this rank alone (default: all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        directory = arguments.dir or _last_run()
        ranks = [_read(path) for path in sorted((directory / "log_output").glob("rank*.auto.json"))]
        if arguments.rank is not None:
            ranks = [rank for rank in ranks if rank["rank"] == arguments.rank]
        if not ranks:
            which = "no rank" if arguments.rank is None else f"rank {arguments.rank} never"
            raise ValueError(f"{directory}: {which} has run there under STALLOC_MODE=Auto (log_output/rank*.auto.json)")
    except (OSError, ValueError) as error:
        print(f"stalloc status: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"directory": str(directory), "ranks": ranks}, indent=1))
        return 0
    print(directory)
    told = _of_many(ranks) if len(ranks) >= many_ranks.MANY else [line for rank in ranks for line in _of_one(rank)]
    print("\n".join(told))
    return 0


def _last_run() -> Path:
    chosen = os.environ.get("STALLOC_MODEL_INFO_PATH")
    found = Path(chosen) if chosen else _run_cache.last_run(os.environ)
    if found is None:
        raise ValueError("no run is in the cache; name a directory")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        rank: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {"rank": int(rank["rank"]), "stages": [_checked(stage) for stage in rank["stages"]]}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected stages of a rank, as a run writes them: {error!r}") from error


def _checked(stage: Any) -> dict[str, Any]:
    return {**stage, "stage": str(stage["stage"]), "after_seconds": float(stage["after_seconds"])}


def _of_one(rank: dict[str, Any]) -> list[str]:
    return [_line(f"rank {rank['rank']}", stage["stage"], [stage]) for stage in rank["stages"]]


def _of_many(ranks: list[dict[str, Any]]) -> list[str]:
    """A line for each stage that some are at, and which those are."""
    last: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for rank in ranks:
        for stage in rank["stages"][-1:]:
            last.setdefault(stage["stage"], []).append((rank["rank"], stage))
    lines = []
    for name, found in sorted(last.items(), key=lambda item: -len(item[1])):
        lines.append(_line(many_ranks.counted(len(found)), name, [stage for _, stage in found]))
        lines.append(f"    rank {many_ranks.listed([rank for rank, _ in found])}")
    return lines


def _line(who: str, name: str, stages: list[dict[str, Any]]) -> str:
    """What stages of one name say, of one rank or of many."""
    after, iterations = (many_ranks.ranged([stage[key] for stage in stages], told) for key, told in _TIMES)
    names = [key for key in stages[0] if key not in _HEAD and all(key in stage for stage in stages)]
    facts = ", ".join(_fact(key, [stage[key] for stage in stages]) for key in names)
    return f"{who}  {after:>9} s  {iterations:>6} iterations  {name:<9}  {facts}".rstrip()


_TIMES = (("after_seconds", "{:.1f}".format), ("iterations", "{:.0f}".format))


def _fact(name: str, values: list[Any]) -> str:
    words = name.rsplit("_", 1)[0].replace("_", " ")
    if name.endswith("_bytes"):
        return f"{words} {many_ranks.ranged(values, size)}"
    if name.endswith("_seconds"):
        return f"{words} {many_ranks.ranged(values, '{:.2f} s'.format)}"
    if name.endswith("efficiency"):
        return f"{words} E {many_ranks.ranged([100 * value for value in values], '{:.2f} %'.format)}"
    if name == "to_trace":
        return f"{many_ranks.ranged(values, '{:.0f}'.format)} iterations to trace"
    if name == "iteration":
        return f"from iteration {many_ranks.ranged(values, '{:.0f}'.format)} on"
    return str(values[0])  # a path, a reason: the first rank's stands for all
