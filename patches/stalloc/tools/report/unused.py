"""Blocks that are held while no operation uses them, from the planner's JSON of a trace with uses. Bytes.

Where a trace has none (STALLOC_TRACE_USES=1 records them) there are no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stalloc.core.module_paths import pattern_of
from stalloc.core.sizes import size
from stalloc.tools.report import source_lines

HOW = {"early": "allocated early", "late": "freed late", "idle": "idle"}
_NUMBERS = ("bytes", "count", "events", "ns", "byte_seconds", "at_peak", "peak", "before", "after")


def rows(view: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Unused blocks of one device in groups of like blocks, by what avoiding them saves."""
    drawn = view["devices"][index]
    table = drawn["unused"]
    if table is None:
        return []
    return [
        {
            "kind": table["kind"][i],
            "class": view["classes"][table["class"][i]],
            "phase": drawn["roles"][table["role"][i]],
            "layer": _layer(drawn["layers"][table["layer"][i]], table["layers"][i]),
            "tensor": table["name"][i],
            "call_site": drawn["stacks"]["call_site"][table["stack"][i]],
            "variables": source_lines.assigned(
                drawn["stacks"]["calls"][table["stack"][i]], drawn["stacks"]["call_site"][table["stack"][i]]
            ),
            "saves_bytes": drawn["peak"]["live_bytes"] - table["peak"][i],
            **{key: table[key][i] for key in _NUMBERS},
        }
        for i in range(len(table["kind"]))
    ]


def worded(row: dict[str, Any]) -> str:
    """The block and its origin: "activations of 4.00 MiB, 12 times, in F 0, blocks.*.mlp"."""
    times = f", {row['count']} times" if row["count"] > 1 else ""
    places = [row["phase"], row["layer"], row["tensor"], row["call_site"]]
    return f"{row['class']} of {size(row['bytes'])}{times}: " + ", ".join(place for place in places if place)


def when(row: dict[str, Any]) -> str:
    """Between which operations: "545 events (1.2 ms) after aten::mul"."""
    length = f"{row['events']} events ({row['ns'] / 1e6:.1f} ms)"
    if row["kind"] == "early":
        return f"{length} before {row['after']}"
    if row["kind"] == "late":
        return f"{length} after {row['before']}"
    return f"{length} between {row['before']} and {row['after']}"


def summary(view: dict[str, Any], index: int) -> Iterator[tuple[str, int]]:
    """The peak that the run would have, by each change."""
    drawn = view["devices"][index]
    table = drawn["unused"]
    if table is None:
        return
    yield "every block allocated at its first use", table["early_peak"]
    yield "freed after its last", table["late_peak"]
    yield "both", table["early_and_late_peak"]
    yield "away where it is idle for long (a bound)", table["idle_peak"]


def _layer(layer: str, alike: int) -> str:
    return pattern_of(layer) if alike > 1 else layer
