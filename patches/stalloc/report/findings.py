"""Leaks, and what fits: computed from the planner's JSON. Bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LEAST_ITERATIONS = 3  # that must leave the same behind, one after the other, for a leak


def leaks(view: dict[str, Any], index: int) -> dict[str, Any]:
    """Of one device: blocks that each of the last iterations that can be judged leaves behind, and the growth.

    An iteration can be judged if two others follow. `groups` are the leaks, by bytes an iteration.
    """
    drawn = view["devices"][index]
    growth = drawn["growth"]
    last = len(growth["iteration"]) - 2  # one past the last segment that can be judged
    groups = []
    for i, left in enumerate(growth["left"]):
        run = 0
        while run < last - 1 and left[last - 1 - run] > 0:
            run += 1
        if run < _LEAST_ITERATIONS:
            continue
        blocks = sum(left[last - run : last]) / run
        groups.append(
            {
                "bytes": growth["bytes"][i],
                "class": view["classes"][growth["class"][i]],
                "phase": drawn["roles"][growth["role"][i]],
                "layer": drawn["layers"][growth["layer"][i]],
                "iterations": run,
                "blocks_per_iteration": blocks,
                "bytes_per_iteration": round(blocks * growth["bytes"][i]),
            }
        )
    groups.sort(key=lambda group: -int(group["bytes_per_iteration"]))
    return {
        "device": drawn["device"],
        "judged_iterations": max(0, last - 1),
        "enough_iterations": last - 1 >= _LEAST_ITERATIONS,
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
