"""Graphs as a choice: a program traced with captured CUDA graphs and without, side by side. Bytes, seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object
from stalloc.core.sizes import size
from stalloc.tools.report import collect, select, text

_HOW_TO_TIME = "trace both with STALLOC_TRACE_STEPS=N, and let iterations run after the trace (stalloc run)"
_KEYS = ("peak_live_bytes", "needed_bytes", "held_bytes")


Run = tuple[dict[str, Any], int, Path]  # a view, the index of a device, and whose it is


def choice(view: dict[str, Any], path: Path, other: Path, index: int, memory: int) -> Optional[dict[str, Any]]:
    """Compares one device of a view, of the chosen rank of `path`, with the same of `other`; None for the host's
    memory next to a device's.

    `with` and `without` have what each run needs, `change` is with minus without: `seconds` where both are known in one
    way, `how_timed`. `capture_bytes`: what is live and what pools hold at a capture, at most.

    Raises:
        CollectError: not one of the two has graphs, `other` lacks the device, or it cannot be read.
    """
    if view["devices"][index]["device"] < 0 and len(view["devices"]) > 1:
        return None
    runs = _with_and_without((view, index, path), other)
    reports = [each["rank"]["devices"][at] for each, at, _ in runs]
    how, seconds = _seconds(runs)
    both_ways = [
        {**_needs(report), "seconds": of_step, "run": str(run)}
        for report, of_step, (_, _, run) in zip(reports, seconds, runs)
    ]
    capture = reports[0]["graphs"]["capture_bytes"]
    return {
        "with": both_ways[0],
        "without": both_ways[1],
        "change": {key: _minus(both_ways[0][key], both_ways[1][key]) for key in (*_KEYS, "seconds")},
        "how_timed": how,
        "memory_bytes": memory,
        "fits": [name for name, needs in zip(("with", "without"), both_ways) if needs["held_bytes"] <= memory],
        "capture_bytes": capture,
        "capture_fits": capture <= memory,
    }


def _with_and_without(run: Run, other: Path) -> tuple[Run, Run]:
    view, index, path = run
    rank, number = view["rank"]["rank"], view["devices"][index]["device"]
    second = select.view_of(other, rank if other.is_dir() else None)
    indices = [i for i, drawn in enumerate(second["devices"]) if drawn["device"] == number]
    if not indices:
        raise collect.CollectError(f"{other} has no allocation on device {number}, which {path} is compared on")
    both = (run, (second, indices[0], other))
    has, others = (each["rank"]["devices"][at]["graphs"] is not None for each, at, _ in both)
    if has == others:
        found = "both have captured graphs" if has else "neither has a captured graph"
        raise collect.CollectError(
            f"expected one trace with captured graphs and one without: {path} and {other}: {found}"
        )
    return both if has else (both[1], both[0])


def show(found: dict[str, Any]) -> None:
    have, lack, change = found["with"], found["without"], found["change"]
    names = ("live at the peak", "the device needs", "held with a plan, at least")
    rows: list[Sequence[str]] = [
        (name, size(have[key]), size(lack[key]), text.signed(size(abs(change[key])), change[key]))
        for name, key in zip(names, _KEYS)
    ]
    if found["how_timed"] is not None:
        rows += [
            (
                f"a step ({found['how_timed']})",
                *(f"{1e3 * run['seconds']:.1f} ms" for run in (have, lack)),
                _faster(found),
            )
        ]
    print(text.table(("captured graphs", "with", "without", "change"), rows), end="")
    share = _faster(found)
    held = text.signed(size(abs(change["held_bytes"])), change["held_bytes"])
    print(f"graphs: {held}{f', {share} of the step' if share else ''}")
    if not share:
        print(f"  the times of steps are not in both traces: {_HOW_TO_TIME}")
    memory = size(found["memory_bytes"])
    if not found["capture_fits"]:
        print(f"  the capture alone does not fit into {memory}: {size(found['capture_bytes'])} are held meanwhile")
    elif "with" not in found["fits"]:
        print(f"  with graphs the run does not fit into {memory}")


def _faster(found: dict[str, Any]) -> str:
    seconds = found["change"]["seconds"]
    if seconds is None:
        return ""
    share = 100 * seconds / found["without"]["seconds"]
    return text.signed(f"{abs(share):.1f} %", share)


def _needs(report: dict[str, Any]) -> dict[str, Any]:
    live, graphs, forecast = report["peak"]["live_bytes"], report["graphs"], report["forecast"]
    lending = (forecast or {}).get("lending")
    needed = live if graphs is None else graphs["needed_bytes"]
    held = needed if forecast is None else forecast["held_lower_bound_bytes"]
    return {
        "peak_live_bytes": live,
        "needed_bytes": needed,
        "held_bytes": max(held, needed, 0 if lending is None else lending["held_bytes"]),
    }


def _minus(one: Optional[float], other: Optional[float]) -> Optional[float]:
    return None if one is None or other is None else one - other


# -- Times


def _seconds(runs: Sequence[Run]) -> tuple[Optional[str], list[Optional[float]]]:
    """How times are known, and a step of each run: both in one way, for traced iterations are slower."""
    ways = (("untraced", _after_the_trace), ("while traced", _while_traced))
    for name, way in ways:
        found = [way(*run) for run in runs]
        if all(found):
            return name, found
    return None, [None, None]


def _after_the_trace(view: dict[str, Any], _: int, path: Path) -> Optional[float]:
    """The median of the second half of those that ran there: what is new to a program comes before."""
    trace = path if path.is_file() else path / "trace" / f"rank{view['rank']['rank']:05d}.trace"
    steps = trace.with_suffix(".steps.json")
    try:
        seconds = read_object(steps).get("seconds", []) if steps.is_file() else []
        return statistics.median(map(float, seconds[len(seconds) // 2 :])) if seconds else None
    except (OSError, TypeError, ValueError) as error:
        raise collect.CollectError(f"{steps}: expected the seconds of iterations: {error}") from error


def _while_traced(view: dict[str, Any], index: int, _: Path) -> Optional[float]:
    """The median of the iterations after the last capture, or the first one; the last has no end of its own."""
    report, phases = view["rank"]["devices"][index], view["devices"][index]["phases"]
    if view["rank"]["fingerprint"]["trace_mode"] == "fake":  # its times are those of making it
        return None
    begins: dict[int, int] = {}
    for segment, ns in zip(phases["segment"], phases["ns"]):
        begins.setdefault(segment, ns)
    last = max(1, report["graphs"]["captured_in"]) if report["graphs"] is not None else 1
    spans = [
        begins[segment + 1] - begin for segment, begin in begins.items() if segment > last and segment + 1 in begins
    ]
    return statistics.median(spans) / 1e9 if spans else None
