"""How long the forward passes of each layer take by the size of micro-batches, from iterations of traces at the
device's time whose tokens are known. What is compiled, or loaded, in some of them makes it longer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stalloc.tools.fitting.terms import Terms, are_one, least_terms
from stalloc.tools.fitting.work import Load

_NS = 1e9
_MOST = 8  # iterations of a trace: the last ones


def forward_terms(traces: Sequence[tuple[Sequence[dict[str, Any]], Sequence[Load]]]) -> dict[str, Terms]:
    """By a layer's name; none of layers whose micro-batches all had one size.

    Args:
        traces: of each, its layers (Planner.traced: `name`, `iteration_ns`) and its iterations' loads. The first
            iteration warms up, and does not count.
    """
    seconds: dict[str, list[float]] = {}
    loads: dict[str, list[Load]] = {}
    for layers, iterations in traces:
        for layer in layers:
            for ns, load in list(zip(layer["iteration_ns"], iterations))[1:][-_MOST:]:
                if ns > 0 and load.size > 0:
                    seconds.setdefault(layer["name"], []).append(ns / _NS)
                    loads.setdefault(layer["name"], []).append(load)
    return {
        name: least_terms(found, loads[name])
        for name, found in seconds.items()
        if not are_one([load.size for load in loads[name]])
    }
