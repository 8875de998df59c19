"""The rows of worth.py as a table, and Megatron-LM's row from what bench/megatron/fit.py has left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from paired_steps import median_interval

ALLOCATORS = ("native", "expandable", "stalloc")
GIB = float(1 << 30)


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown: one row a program; tokens a second with what was chosen for them."""
    lines = [
        "| program | native | expandable_segments | stalloc | stalloc / expandable | predicted live, step |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['program']} | {row['error'].splitlines()[0]} | | | | |")
            continue
        found = row["allocators"]
        cells = [_cell(found.get(name), row["longest"]) for name in ALLOCATORS]
        lines.append(f"| {row['program']} | {' | '.join(cells)} | {_ratio(row)} | {_off(found.get('stalloc'))} |")
    return "\n".join(lines) + "\n"


def _cell(one: Optional[dict[str, Any]], longest: bool) -> str:
    if not one or not one["best"] or not one["tokens_per_second"]:
        return "nothing fits" if one else ""
    speed = one["tokens_per_second"]
    low, high = speed["interval"]
    unit = " x 256 tokens" if longest else ""
    return f"{one['best']}{unit}: {speed['mean']:.0f} ({low:.0f} to {high:.0f}), {one['held_bytes'] / GIB:.1f} GiB"


def _ratio(row: dict[str, Any]) -> str:
    ours, peers = (row["allocators"].get(name) for name in ("stalloc", "expandable"))
    if not ours or not peers or not ours["best"] or not peers["best"]:
        return ""
    if row["longest"]:
        return f"{ours['micro_batch'] / peers['micro_batch']:.3f} (length)"
    ratio = f"{ours['tokens_per_second']['mean'] / peers['tokens_per_second']['mean']:.3f}"
    if not ours.get("seconds") or ours["tokens"] != peers.get("tokens"):
        return ratio
    low, high = median_interval([theirs / own for own, theirs in zip(ours["seconds"], peers["seconds"])])
    return f"{ratio} ({low:.3f} to {high:.3f})"


def _off(one: Optional[dict[str, Any]]) -> str:
    if not one or not one["best"] or not one["live_bytes"] or not one["step_seconds"]:
        return ""
    live = one["predicted"]["live_bytes"] / one["live_bytes"] - 1
    step = one["predicted"]["step_seconds"] / one["step_seconds"] - 1
    return f"{100 * live:+.1f} %, {100 * step:+.1f} %"


def megatron_row(document: dict[str, Any]) -> dict[str, Any]:
    """From bench/megatron/fit.py: the fastest that trained under each allocator, with what it recomputed."""
    names = {"native": "native", "expandable": "expandable", "alloc": "stalloc"}
    found: dict[str, Any] = {}
    for mode, name in names.items():
        runs = [run for run in document["runs"] if run["mode"] == mode and run["trained"] and run["tokens_per_second"]]
        if not runs:
            found[name] = {"attempts": [], "best": None}
            continue
        best = max(runs, key=lambda run: run["tokens_per_second"])
        speed = best["tokens_per_second"]
        layers = best["recomputed_layers_of_a_chunk"]
        found[name] = {
            "attempts": runs,
            "best": f"{layers} layers of a chunk recomputed" if layers else "nothing recomputed",
            "tokens_per_second": {"mean": speed, "interval": [speed, speed], "steps": 1},
            "held_bytes": max(best["held_bytes"]),
            "live_bytes": 0,
            "step_seconds": None,
        }
    return {"program": f"Megatron-LM {document['workload']}", "longest": False, "allocators": found}
