"""The planner's view of each rank of a run: files in, JSON values out."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from stalloc.core import coordinates, megatron_arguments
from stalloc.core.json_files import read_object
from stalloc.tools.report import wrappers
from stalloc.tools.report.session import CollectError, Session

__all__ = [
    "CollectError",
    "RankFiles",
    "Session",
    "ViewOptions",
    "broken_off",
    "find_ranks",
    "traced_view",
    "view",
    "views",
]

_TRACE_NAME = re.compile(r"rank(\d{5,})\.trace")


@dataclasses.dataclass(frozen=True)
class RankFiles:
    """The files of one rank; `plan` and `summary` only where they exist."""

    rank: int
    trace: Path
    plan: Optional[Path]
    summary: Optional[Path]


def find_ranks(directory: Path) -> list[RankFiles]:
    """The traced ranks of a run's directory, ascending; of a trace itself, it. CollectError if there is none."""
    if directory.is_file():
        named = _TRACE_NAME.fullmatch(directory.name)
        return [RankFiles(int(named[1]) if named else 0, directory, None, None)]
    found = []
    for trace in sorted((directory / "trace").glob("rank*.trace")):
        match = _TRACE_NAME.fullmatch(trace.name)
        if match:
            plan = directory / "output" / "plan" / f"{trace.stem}.plan"
            summary = directory / "log_output" / f"{trace.stem}.summary.json"
            found.append(RankFiles(int(match[1]), trace, _if_there(plan), _if_there(summary)))
    if not found:
        raise CollectError(
            f"{directory}/trace has no rank00000.trace; record one with STALLOC_MODE=Trace "
            f"STALLOC_MODEL_INFO_PATH={directory}, or make one with stalloc import"
        )
    return found


@dataclasses.dataclass(frozen=True)
class ViewOptions:
    """Inputs of a view in addition to its trace.

    Args:
        second: the same program with another micro-batch, `ratio` times as large: sizes are fitted to both.
        ranks: to share state among, in alternatives; None: as many as the run had.
    """

    second: Optional[Path] = None
    ratio: float = 0.0
    ranks: Optional[int] = None


_PLAIN = ViewOptions()


def broken_off(view: dict[str, Any]) -> Optional[str]:
    """Where the trace of a view ends early, and what its figures then are; None if it ended in order."""
    rank = view["rank"]
    return None if rank["trace_complete"] else str(rank["warnings"][0])


def traced_view(trace: Path, every_block: bool = False) -> dict[str, Any]:
    """The facts of the trace alone (keys: docs/report-json.md); `every_block`: also each block. CollectError."""
    with Session(trace) as session:
        found: dict[str, Any] = session.query("view", every_block=every_block)
        return found


def view(files: RankFiles, options: ViewOptions = _PLAIN) -> dict[str, Any]:
    """All that a report shows of one rank (keys: docs/report-json.md). `summary` is what the last run left, or None.

    `place`: where the rank stands, "tp 1, pp 0"; empty where that is not known or there is one rank. `replicas`: how
    many ranks have the same part of the model, so that they could share its state.

    Raises:
        CollectError: the planner is missing or refuses a file; the text has its words.
    """
    place = _place(files)
    replicas = None if place is None else _replicas(place)
    ranks = replicas if options.ranks is None else options.ranks
    plan = str(files.plan) if files.plan else None
    with Session(files.trace, options.second, options.ratio) as session:
        result: dict[str, Any] = session.query("view", plan=plan, ranks=ranks)
    result["replicas"] = replicas or max(1, result["rank"]["fingerprint"]["world_size"])
    for device in result["devices"]:
        wrappers.unwrap(device)
    result["place"] = "" if place is None else place.worded()
    result["megatron_arguments"] = _settled(files)
    result["summary"] = _read_summary(files.summary)
    return result


def views(ranks: Sequence[RankFiles], options: ViewOptions = _PLAIN) -> list[dict[str, Any]]:
    """The same for many, in parallel.

    Of ranks whose traces `stalloc plan` found equal one is looked at. The others' views have its tables, which are the
    same objects, and `equal_to`, its rank.
    """
    equal = _equal_ranks(ranks)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        looked_at = [files for files in ranks if files.rank not in equal]
        found = dict(zip((files.rank for files in looked_at), pool.map(lambda files: view(files, options), looked_at)))
    for files in ranks:
        planned = equal.get(files.rank)
        if planned is not None and planned.equal_to is not None:
            found[files.rank] = _as_equal(files, planned, found[planned.equal_to])
    return [found[files.rank] for files in ranks]


@dataclasses.dataclass(frozen=True)
class _Planned:
    """What `stalloc plan` reported of a rank: its coordinates, and the rank that it is equal to."""

    fingerprint: dict[str, Any]
    devices: tuple[int, ...]
    equal_to: Optional[int]


def _equal_ranks(ranks: Sequence[RankFiles]) -> dict[int, _Planned]:
    """The ranks that are equal to another one here."""
    known = {files.rank: _planned(files) for files in ranks} if len(ranks) > 1 else {}
    return {
        rank: planned
        for rank, planned in known.items()
        if planned is not None and planned.equal_to is not None and known.get(planned.equal_to) is not None
    }


def _planned(files: RankFiles) -> Optional[_Planned]:
    """None if nothing was reported for this trace, or only for an older one."""
    path = files.trace.parents[1] / "output" / "trace_analysis" / f"{files.trace.stem}.json"
    try:
        if path.stat().st_mtime < files.trace.stat().st_mtime:
            return None
        report = read_object(path)
        devices = tuple(int(device["device"]) for device in report["devices"])
        return _Planned(report["fingerprint"], devices, report.get("equal_to_rank"))
    except (OSError, ValueError, KeyError):
        return None


def _as_equal(files: RankFiles, planned: _Planned, like: dict[str, Any]) -> dict[str, Any]:
    place = _place(files)
    rank = {"rank": files.rank, "fingerprint": planned.fingerprint}
    return {
        **like,
        "equal_to": planned.equal_to,
        "rank": {**like["rank"], **rank, "devices": _on(like["rank"]["devices"], planned.devices)},
        "devices": _on(like["devices"], planned.devices),
        "place": "" if place is None else place.worded(),
        "megatron_arguments": _settled(files),
        "summary": _read_summary(files.summary),
    }


def _on(devices: Sequence[dict[str, Any]], ordinals: Sequence[int]) -> list[dict[str, Any]]:
    return [{**device, "device": ordinal} for device, ordinal in zip(devices, ordinals)]


def _place(files: RankFiles) -> Optional[coordinates.Coordinates]:
    """None if no coordinates lie next to the trace."""
    if files.trace.parent.name != "trace":
        return None
    try:
        return coordinates.read_one(files.trace.parents[1], files.rank)
    except ValueError as error:
        raise CollectError(str(error)) from error


def _replicas(place: coordinates.Coordinates) -> int:
    """Data and context parallelism share weights."""
    _, _, context, _, data = place.sizes
    return max(1, context * data)


def _settled(files: RankFiles) -> Optional[dict[str, Any]]:
    try:
        return megatron_arguments.read_settled(files.trace)
    except (OSError, ValueError) as error:
        raise CollectError(str(error)) from error


def _if_there(path: Path) -> Optional[Path]:
    return path if path.is_file() else None


def _read_summary(path: Optional[Path]) -> Optional[dict[str, Any]]:
    if path is None:
        return None
    try:
        return read_object(path)
    except OSError as error:
        raise CollectError(f"{path}: {error}") from error
    except ValueError as error:  # which names the path
        raise CollectError(str(error)) from error
