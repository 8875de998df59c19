"""What comes of the times of steps that several allocators have made: steps are compared by their index.

The ratio of each step to that of another allocator with the same index; the interval that the true median is in with
95 % confidence; and the same of rounds, as many steps as there are processes that alternate, in which each has each
place in the order once (a process that steps after its own step is faster by some percent).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Optional

BASES = ("native", "expandable")


def median_interval(values: list[float], confidence: float = 0.95) -> list[float]:
    """Two of the values, between which the true median is with at least this confidence, whatever the distribution (the
    sign test's interval); the extremes where there are too few values for it."""
    ordered = sorted(values)
    tail = (1 - confidence) / 2
    below, rank = 0.0, 0  # P(fewer than `rank` + 1 values lie below the median)
    while rank < len(ordered) // 2:
        below += math.comb(len(ordered), rank) / 2 ** len(ordered)
        if below > tail:
            break
        rank += 1
    outermost = max(rank - 1, 0)
    return [ordered[outermost], ordered[len(ordered) - 1 - outermost]]


def round_sums(values: list[float], length: int) -> list[float]:
    """Of each `length` values in a row; a rest is left out."""
    return [sum(values[i : i + length]) for i in range(0, len(values) - length + 1, length)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least of the values that so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def compare(own: Sequence[float], base: Sequence[float], warm_up: int, together: int = 1) -> Optional[dict[str, Any]]:
    """Ratios to the base's steps from `warm_up` on, of as many as both have made; None: neither has any.

    Args:
        together: processes that alternate: in as many steps each of them had each place in the order once.
    """
    count = min(len(own), len(base))
    own, base = list(own[warm_up:count]), list(base[warm_up:count])
    if not own:
        return None
    ratios = [a / b for a, b in zip(own, base)]
    found = {
        "steps": len(own),
        "median": statistics.median(ratios),
        "interval": median_interval(ratios),
        "ratio_of_sums": sum(own) / sum(base),
        "ratio_of_p99": percentile(own, 99) / percentile(base, 99),
    }
    rounds = [a / b for a, b in zip(round_sums(own, together), round_sums(base, together))]
    if together > 1 and rounds:
        found |= {"median_of_rounds": statistics.median(rounds), "interval_of_rounds": median_interval(rounds)}
    return found


def row_of(name: str, seconds: Mapping[str, Sequence[float]], warm_up: int, alternating: bool) -> dict[str, Any]:
    """An allocator's own steps, and their ratios to those of native and expandable_segments where these have run."""
    own = list(seconds[name][warm_up:])
    bases = [base for base in BASES if base in seconds and base != name]
    together = len(seconds) if alternating else 1
    return {
        "median_seconds": statistics.median(own),
        "mean_seconds": statistics.mean(own),
        "p99_seconds": percentile(own, 99),
        "over": {base: compare(seconds[name], seconds[base], warm_up, together) for base in bases},
    }


def arena_changes(stalloc: Mapping[str, Any], seconds: Sequence[float], warm_up: int) -> Optional[dict[str, Any]]:
    """Moves of the arena's memory, mappings and waits for the device between the end of the `warm_up`th step and the
    end of the run, in seconds, and their share of the steps in between. Moves include the waits. None: not counted."""
    before, after = stalloc.get("at_warm_up") or {}, stalloc.get("at_end") or {}
    spent = sum(seconds[warm_up:])
    if "arena_times_moved" not in before or "arena_times_moved" not in after or not spent:
        return None

    def since(name: str) -> Any:
        return after[f"arena_{name}"] - before[f"arena_{name}"]

    found = {
        "moves": since("times_moved"),
        "moved_bytes": since("moved_bytes"),
        "maps": since("times_grown") + since("times_mapped_again"),
        "waits": since("times_waited"),
        **{name: since(name) for name in ("move_seconds", "map_seconds", "wait_seconds")},
    }
    found["share_of_steps"] = (found["move_seconds"] + found["map_seconds"]) / spent
    return found
