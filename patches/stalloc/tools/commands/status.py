"""`stalloc status`: how far runs under STALLOC_MODE=Auto are, or came, and what any run held."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import run_cache, run_status
from stalloc.core.sizes import size
from stalloc.tools.commands import many_ranks, options, summary

EXAMPLES = ("status run1",)

_EPILOG = """
The last line of a rank is the state of its process: running, ended (by itself), gone (killed), or unknown, if it is
on another machine or in another container. Iterations are those completed when it was last seen.
Without DIR, stalloc shows the run in STALLOC_MODEL_INFO_PATH, else the kept run that was started last.
For more than eight ranks stalloc shows how many are at each stage, and their figures from least to most; --rank R shows
one rank. First come the bytes that the run reserved, for each rank that ended in mode Trace, Alloc or Auto.
"""
_HEAD = ("stage", "after_seconds", "iterations")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG + summary.ABOUT
    parser.add_argument("dir", metavar="DIR", nargs="?", type=Path, help="show the run in this directory")
    options.add_rank(parser, "all")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        directory = arguments.dir or _last_run()
        ranks = [run_status.read(path) for path in sorted((directory / "log_output").glob("rank*.auto.json"))]
        if arguments.rank is not None:
            ranks = [rank for rank in ranks if rank["rank"] == arguments.rank]
        held = summary.read(directory, arguments.rank)
        if not ranks and not held:
            which = "no rank" if arguments.rank is None else f"rank {arguments.rank} never"
            raise ValueError(
                f"{directory}: {which} has run there under STALLOC_MODE=Auto (log_output/rank*.auto.json), "
                "and none has left a summary (rank*.summary.json), as in mode Trace, Alloc or Auto"
            )
    except (OSError, ValueError) as error:
        return options.refuse("status", error)
    summary.warn_of_traces("status", directory, held)
    if arguments.json:
        print(json.dumps({"directory": str(directory), "ranks": ranks, "summaries": summary.rows_of(held)}, indent=1))
        return 0
    worded = _of_many(ranks) if len(ranks) >= many_ranks.MANY else [line for rank in ranks for line in _of_one(rank)]
    print("\n".join([str(directory), *summary.lines_of(held), *worded]))
    return 0


def _last_run() -> Path:
    chosen = os.environ.get("STALLOC_MODEL_INFO_PATH")
    found = Path(chosen) if chosen else run_cache.last_run(os.environ)
    if found is None:
        raise ValueError("no run is in the cache; name a directory")
    return found


def _of_one(rank: dict[str, Any]) -> list[str]:
    return [_line(f"rank {rank['rank']}", stage["stage"], [stage]) for stage in _ways(rank)]


def _of_many(ranks: list[dict[str, Any]]) -> list[str]:
    """A line for each stage that some are at, and which those are; then for what their processes do."""
    lines = []
    for found in (_last_stage, _state):
        by_name: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for rank in ranks:
            stage = found(rank)
            if stage is not None:
                by_name.setdefault(stage["stage"], []).append((rank["rank"], stage))
        for name, those in sorted(by_name.items(), key=lambda item: -len(item[1])):
            lines.append(_line(many_ranks.counted(len(those)), name, [stage for _, stage in those]))
            lines.append(f"    rank {many_ranks.listed([rank for rank, _ in those])}")
    return lines


def _ways(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """The rank's stages, and what its process does."""
    state = _state(rank)
    return [*rank["stages"], *([state] if state is not None else [])]


def _last_stage(rank: dict[str, Any]) -> Optional[dict[str, Any]]:
    return rank["stages"][-1] if rank["stages"] else None


def _state(rank: dict[str, Any]) -> Optional[dict[str, Any]]:
    """None where it is not known, or is the last stage."""
    state: Optional[dict[str, Any]] = rank["state"]
    last = _last_stage(rank)
    return None if state is None or (last is not None and last["stage"] == state["stage"]) else state


def _line(who: str, name: str, stages: list[dict[str, Any]]) -> str:
    """The figures of stages of one name, of one rank or of many."""
    after, iterations = (many_ranks.ranged([stage[key] for stage in stages], worded) for key, worded in _TIMES)
    names = [key for key in stages[0] if key not in _HEAD and all(key in stage for stage in stages)]
    facts = ", ".join(filter(None, (_fact(key, [stage[key] for stage in stages]) for key in names)))
    return f"{who}  {after:>9} s  {iterations:>6} iterations  {name:<9}  {facts}".rstrip()


_TIMES = (("after_seconds", "{:.1f}".format), ("iterations", "{:.0f}".format))


def _one_pid(values: list[Any]) -> str:
    return f"pid {values[0]}" if len(values) == 1 else ""


_WORDS: dict[str, Callable[[list[Any]], str]] = {
    "pid": _one_pid,
    "host": lambda values: f"on {', '.join(dict.fromkeys(map(str, values)))}",
    "seen_seconds_ago": lambda values: f"seen {many_ranks.ranged(values, '{:.0f} s'.format)} ago",
    "to_trace": lambda values: f"{many_ranks.ranged(values, '{:.0f}'.format)} iterations to trace",
    "iteration": lambda values: f"from iteration {many_ranks.ranged(values, '{:.0f}'.format)} on",
}


def _fact(name: str, values: list[Any]) -> str:
    if name in _WORDS:
        return _WORDS[name](values)
    words = name.rsplit("_", 1)[0].replace("_", " ")
    if name.endswith("_bytes"):
        return f"{words} {many_ranks.ranged(values, size)}"
    if name.endswith("_seconds"):
        return f"{words} {many_ranks.ranged(values, '{:.2f} s'.format)}"
    if name.endswith("efficiency"):
        return f"{words} E {many_ranks.ranged([100 * value for value in values], '{:.2f} %'.format)}"
    return str(values[0])  # a path, a reason: the first rank's stands for all
