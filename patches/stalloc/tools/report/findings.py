"""Leaks, and what fits: computed from the planner's JSON. Bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def leaks(view: dict[str, Any], index: int) -> dict[str, Any]:
    """Of one device: the kinds of blocks of which more is live at the beginning of each iteration (growth.h).

    `groups` are the leaks, by bytes an iteration; `judged_iterations`: those whose beginnings are compared.
    """
    drawn = view["devices"][index]
    growth = drawn["growth"]
    iterations = len(growth["iteration"]) - 1  # without the set-up
    groups = [
        {
            "bytes": growth["least_bytes"][i],
            "most_bytes": growth["most_bytes"][i],
            "class": view["classes"][growth["class"][i]],
            "phase": drawn["roles"][growth["role"][i]],
            "layer": drawn["layers"][growth["layer"][i]],
            "call_site": drawn["stacks"]["call_site"][growth["stack"][i]],
            "calls": drawn["stacks"]["calls"][growth["stack"][i]],
            "since_iteration": growth["since"][i],
            "blocks_per_iteration": growth["blocks_per_iteration"][i],
            "bytes_per_iteration": round(growth["bytes_per_iteration"][i]),
            "live": growth["live"][i][1:],
        }
        for i in range(len(growth["class"]))
    ]
    return {
        "device": drawn["device"],
        "iterations": iterations,
        "judged_iterations": max(0, iterations - 1),
        "needed_iterations": growth["needed_iterations"],
        "enough_iterations": iterations >= growth["needed_iterations"],
        "live_at_begin": [
            {"iteration": number, "bytes": live}
            for number, live in zip(growth["iteration"][1:], growth["begin_live"][1:])
        ],
        "bytes_per_iteration": sum(int(group["bytes_per_iteration"]) for group in groups),
        "groups": groups,
    }


def largest_scale(points: dict[str, Sequence[int]], room: float) -> float:
    """The greatest k for which fixed + k x scaling is at most `room` at all points; 0 if even the fixed part is more.

    Raises:
        ValueError: nothing scales, so that any k fits.
    """
    if not any(points["scaling"]):
        raise ValueError("nothing in the trace scales with the micro-batch")
    if max(points["fixed"]) > room and min(points["scaling"]) == 0:
        return 0.0
    return max(
        0.0,
        min((room - fixed) / scaling for fixed, scaling in zip(points["fixed"], points["scaling"]) if scaling > 0),
    )


def peak_at_scale(points: dict[str, Sequence[int]], scale: float) -> int:
    return round(max(fixed + scale * scaling for fixed, scaling in zip(points["fixed"], points["scaling"])))
