"""The summaries that `stalloc status` shows: what a run held, and what its plan saved, of each rank."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object
from stalloc.core.outcome import NEVER_SHORT, Outcome, held_for, outcome_of
from stalloc.core.sizes import size
from stalloc.tools.commands import many_ranks, options
from stalloc.tools.report import collect

EXAMPLES = ("summary run1",)

ABOUT = """
The command reads DIR/log_output/rank00000.summary.json, which a run in mode Trace, Alloc or Auto writes (--json: all of
it; docs/summary.md has its keys). E is the peak of live bytes divided by the peak of reserved bytes. The saving is the
difference to a model of PyTorch's allocator that followed the run's first requests, or that the planner fed with the
trace. It is not known if the run changed later. If more than eight lines would differ, ranks are summarized; --rank R
shows one.
"""
Found = tuple[int, dict[str, Any], Optional[Outcome]]  # rank, its summary, what it came to
_NAME = re.compile(r"rank(\d{5,})\.summary\.json")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ABOUT
    parser.add_argument("dir", metavar="DIR", type=Path, help="show the run in this directory")
    options.add_rank(parser, "all")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        found = read(arguments.dir, arguments.rank)
        if not found:
            which = "no rank" if arguments.rank is None else f"not rank {arguments.rank}"
            raise ValueError(
                f"{arguments.dir}/log_output has the summary of {which}; a run in mode Trace, Alloc or Auto leaves it"
            )
    except (OSError, ValueError) as error:
        return options.refuse("summary", error)
    warn_of_traces("summary", arguments.dir, found)
    print(json.dumps({"ranks": rows_of(found)}, indent=1) if arguments.json else "\n".join(lines_of(found)))
    return 0


def rows_of(found: list[Found]) -> list[dict[str, Any]]:
    return [{"rank": rank, "outcome": _as_json(outcome), "summary": summary} for rank, summary, outcome in found]


def lines_of(found: list[Found]) -> list[str]:
    lines: dict[str, list[int]] = {}  # ranks of a large run mostly say the same
    for rank, summary, outcome in found:
        mode = summary.get("degraded") or summary.get("mode")
        text = f"{mode}: {'nothing was allocated' if outcome is None else outcome.worded()}"
        lines.setdefault(text, []).append(rank)
    if len(lines) >= many_ranks.MANY:
        return _of_many(found)
    return [f"rank {many_ranks.listed(of_ranks)}  {text}" for text, of_ranks in lines.items()]


def _of_many(found: list[Found]) -> list[str]:
    """Ranks of which hardly two say the same: from the least to the most, and who wastes most."""
    modes: dict[str, list[Found]] = {}
    for one in found:
        mode = str(one[1].get("degraded") or one[1].get("mode"))
        modes.setdefault(re.sub(r"rank\d{5,}", "rankNNNNN", mode), []).append(one)  # a reason names the rank's file
    lines = []
    for mode, ones in modes.items():
        outcomes = [(rank, outcome) for rank, _, outcome in ones if outcome is not None]
        lines.append(f"{many_ranks.counted(len(ones))}  {mode}: {_ranges(outcomes)}")
        lines.append(f"    rank {many_ranks.listed([rank for rank, _, _ in ones])}")
    return lines


def _ranges(outcomes: list[tuple[int, Outcome]]) -> str:
    if not outcomes:
        return "nothing was allocated"
    held, live = (
        many_ranks.ranged([getattr(outcome, name) for _, outcome in outcomes], size)
        for name in ("held_peak_bytes", "peak_live_bytes")
    )
    text = held_for(held, live)
    short = [(rank, outcome) for rank, outcome in outcomes if outcome.was_short]
    if short:
        text += f": E {many_ranks.ranged([100 * outcome.efficiency for _, outcome in short], '{:.2f} %'.format)}"
        text += f", least on rank {min(short, key=lambda one: one[1].efficiency)[0]}"
    else:
        text += f", {NEVER_SHORT}"
    saved = [outcome.saved_bytes for _, outcome in outcomes if outcome.saved_bytes is not None]
    return f"{text}; saved {many_ranks.ranged(saved, size)}" if saved else text


def read(directory: Path, rank: Optional[int]) -> list[Found]:
    """The summaries of this rank, or of all; OSError or ValueError names a file that cannot be read."""
    named = [(_NAME.fullmatch(path.name), path) for path in sorted((directory / "log_output").glob("rank*.json"))]
    paths = {int(match[1]): path for match, path in named if match}
    summaries = {number: read_object(path) for number, path in paths.items() if rank in (None, number)}
    return [(number, summary, outcome_of(summary, directory, number)) for number, summary in summaries.items()]


def warn_of_traces(command: str, directory: Path, found: list[Found]) -> None:
    """Says which of these ranks were planned from a trace that was broken off: what is saved is by that trace."""
    for rank, _, _ in found:
        try:
            analysis = read_object(directory / "output" / "trace_analysis" / f"rank{rank:05d}.json")
            options.warn(command, collect.broken_off({"rank": analysis}))
        except (OSError, ValueError, LookupError):
            continue  # it was not planned here


def _as_json(outcome: Any) -> Any:
    if not isinstance(outcome, Outcome):
        return None
    return {**dataclasses.asdict(outcome), "saved_bytes": outcome.saved_bytes}
