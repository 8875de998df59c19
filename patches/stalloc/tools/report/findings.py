"""Leaks, and what fits: computed from the planner's JSON. Bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.core.sizes import size


def leaks(view: dict[str, Any], index: int) -> dict[str, Any]:
    """The growth of one device: kinds of blocks of which more is live at the beginning of each iteration (growth.h).

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


def growth_inside(view: dict[str, Any], index: int) -> Optional[str]:
    """A sentence where live memory grows from part to part of one iteration; None where it does not."""
    inside = view["devices"][index]["growth"]["inside"]
    if inside is None:
        return None
    site = view["devices"][index]["stacks"]["call_site"][inside["stack"]]
    blocks = f"{inside['blocks']} blocks{', the largest at ' + site if site else ''}"
    return (
        f"{size(inside['bytes'])} of the peak's iteration are made all through it and stay until its end "
        f"({blocks}). If these are several iterations, call "
        "stalloc.iteration() where each begins. If not, a graph is carried from one part to the next: "
        "state = state.detach() between them lets go of it."
    )


def largest_scale(points: dict[str, Sequence[int]], limit: float) -> float:
    """The greatest k for which fixed + k x scaling + k^2 x square is at most `limit` at all points; 0 if even the fixed
    part is more.

    Raises:
        ValueError: nothing scales, so that any k fits.
    """
    if not any(scaling or square for _, scaling, square in _each(points)):
        raise ValueError("nothing in the trace scales with the micro-batch")
    return min(_largest_scale(limit - fixed, *growing) for fixed, *growing in _each(points))


def _largest_scale(limit: float, scaling: int, square: int) -> float:
    if limit < 0:
        return 0.0
    divisor = scaling + math.sqrt(scaling * scaling + 4 * square * limit)
    return 2 * limit / divisor if divisor > 0 else math.inf


def peak_at_scale(points: dict[str, Sequence[int]], scale: float) -> int:
    return round(max(fixed + scale * (scaling + scale * square) for fixed, scaling, square in _each(points)))


def _each(points: dict[str, Sequence[int]]) -> zip[tuple[int, int, int]]:
    """Without `square` nothing grows with it."""
    return zip(points["fixed"], points["scaling"], points.get("square", itertools.repeat(0)))
