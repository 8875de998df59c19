"""What compare_modes.py finds out about single iterations: E and step time of each, and checks on them.

E of an iteration is its peak of live bytes / its peak of held bytes, both of the same run. Step times of a single
iteration are noisy (a clock that boosts, a host that does something else), so runs are compared by the medians of
windows of five successive iterations: one slow step in five is no finding, a slowdown that lasts is, wherever in the
run it is. The first iteration compiles, loads and warms up, and is in no window. Single steps are reported, not judged.
"""

from __future__ import annotations

import statistics
from typing import Any, Optional

WINDOW = 5
UNTIMED = 1  # iterations at the beginning


def iterations_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry for each iteration of a run of train_gpt.py; without memory figures where nobody counted them."""
    iterations = []
    for seconds, peaks in zip(result["step_seconds"], result["iteration_peaks"]):
        entry: dict[str, Any] = {"step_seconds": seconds}
        if peaks:
            entry |= {"live_bytes": peaks["live"], "held_bytes": peaks["held"]}
            entry["efficiency"] = peaks["live"] / peaks["held"] if peaks["held"] else None
        iterations.append(entry)
    return iterations


def least_efficiency(iterations: list[dict[str, Any]]) -> Optional[tuple[float, int]]:
    """The lowest E and its iteration; None where no memory was counted."""
    known = [(entry["efficiency"], i) for i, entry in enumerate(iterations) if entry.get("efficiency")]
    return min(known) if known else None


def settled_ratio(seconds: list[float], native: list[float]) -> float:
    """The ratio of the median steps of the iterations that both runs have, the first third left out. A traced run is
    shorter than the others, and a training step is slowest in its first iterations, long beyond the warm-up.
    """
    shared = min(len(seconds), len(native))
    return statistics.median(seconds[shared // 3 : shared]) / statistics.median(native[shared // 3 : shared])


def window_medians(seconds: list[float]) -> list[float]:
    """By the window's first iteration, from UNTIMED on; one over all there are where they are fewer than a window."""
    timed = seconds[UNTIMED:]
    if len(timed) <= WINDOW:
        return [statistics.median(timed)] if timed else []
    return [statistics.median(timed[i : i + WINDOW]) for i in range(len(timed) - WINDOW + 1)]


def slowest_window(seconds: list[float], native: list[float]) -> Optional[tuple[float, int]]:
    """The greatest ratio of window medians, and that window's first iteration. Both runs must be equally long."""
    if len(seconds) != len(native):
        return None
    ratios = [own / other for own, other in zip(window_medians(seconds), window_medians(native))]
    return max(((ratio, i + UNTIMED) for i, ratio in enumerate(ratios)), default=None)


def slowest_step(seconds: list[float], native: list[float]) -> Optional[tuple[float, int]]:
    """The greatest ratio of a single step to the native window medians around it, and its iteration."""
    medians = window_medians(native)
    if len(seconds) != len(native) or not medians:
        return None
    return max(
        (seconds[i] / medians[min(max(i - UNTIMED - WINDOW // 2, 0), len(medians) - 1)], i)
        for i in range(UNTIMED, len(seconds))
    )


def efficiency_failures(own: list[dict[str, Any]], peer: list[dict[str, Any]], first: int) -> list[str]:
    """Iterations from `first` on in which `own` has a lower E than `peer`; one sentence for all of them."""
    known = [
        i for i, pair in enumerate(zip(own, peer)) if i >= first and all(entry.get("efficiency") for entry in pair)
    ]
    lower = [i for i in known if own[i]["efficiency"] < peer[i]["efficiency"]]
    if not lower:
        return []
    worst = min(lower, key=lambda i: own[i]["efficiency"] - peer[i]["efficiency"])
    return [
        f"alloc: E is lower than expandable's in {len(lower)} of {len(known)} iterations, most in iteration {worst}: "
        f"{own[worst]['efficiency']:.4%} against {peer[worst]['efficiency']:.4%}"
    ]


def time_failures(seconds: list[float], native: list[float], limit: float) -> list[str]:
    """A sentence if a window is slower than `limit` times native's."""
    slowest = slowest_window(seconds, native)
    if slowest is None or slowest[0] <= limit:
        return []
    ratio, first = slowest
    return [
        f"alloc: iterations {first} to {min(first + WINDOW, len(seconds)) - 1} take {ratio:.4f} x native's (medians), "
        f"expected at most {limit}"
    ]
