"""Leaks and advice: what a trace says should be looked at, computed from the planner's JSON. Bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stalloc.report.figures import size

_LEAST_ITERATIONS = 3  # that must leave the same behind, one after the other, for a leak
_LEAST_SAVING = 0.002  # of the peak: advice below it is noise


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


def advice(view: dict[str, Any], index: int, of_device: dict[str, Any]) -> list[dict[str, Any]]:
    """Of one device, by bytes saved: {"what", "saves_bytes", "peak_bytes", "cost", "cost_share", "how_known"}.

    `of_device`: figures.device_figures. Savings of the live peak are of the whole run, played with the change; those of
    an allocator are of what the device holds. They do not add up: two changes may remove the same peak.
    """
    rows = _from_alternatives(view, view["devices"][index]) + _from_allocators(of_device)
    peak = of_device["peak_live_bytes"]
    leaking = leaks(view, index)
    if leaking["bytes_per_iteration"]:
        rows.append(
            _row(
                f"stop leaving {size(leaking['bytes_per_iteration'])} behind in every iteration (stalloc leaks)",
                leaking["bytes_per_iteration"] * leaking["judged_iterations"],
                peak,
                "none",
                f"over the {leaking['judged_iterations']} traced iterations that can be judged",
            )
        )
    rows = [row for row in rows if row["saves_bytes"] >= _LEAST_SAVING * peak]
    return sorted(rows, key=lambda row: -int(row["saves_bytes"]))


def _row(what: str, saves: int, peak: int, cost: str, how: str) -> dict[str, Any]:
    return {
        "what": what,
        "saves_bytes": saves,
        "peak_bytes": peak,
        "cost": cost,
        "cost_share": 0.0,
        "how_known": how,
    }


def _from_alternatives(view: dict[str, Any], drawn: dict[str, Any]) -> list[dict[str, Any]]:
    found, live = drawn["alternatives"], drawn["peak"]["live_bytes"]
    forward = _forward_shares(drawn)
    world = view["rank"]["fingerprint"]["world_size"]
    rows = []
    for i, kind in enumerate(found["kind"]):
        layer, role, block = found["layers"][i], drawn["roles"][found["role"][i]], found["bytes"][i]
        saves, at_peak = live - found["peak"][i], size(found["at_peak"][i])
        share = 0.0
        if kind == "recompute layer":
            share = sum(part for name, part in forward.items() if _called(name, layer))
            what, cost = f"recompute {layer}", f"its forward pass again, {100 * share:.1f} % of the iteration"
        elif kind == "recompute all":
            share = sum(part for name, part in forward.items() if not any(map(forward.__contains__, _above(name))))
            what, cost = "recompute all layers (a bound: layer inputs stay)", "every forward pass again"
            cost += f", {100 * share:.1f} % of the iteration" if share else ", about a third of the arithmetic"
        elif kind == "drop activations":
            what, cost = f"recompute or offload activations of {size(block)}", "what makes them, again"
        elif kind == "offload state":
            what, cost = "keep the optimizer state elsewhere (offload)", f"{at_peak} over the bus, twice a step"
        elif kind == "shard state":
            what, cost = f"share the optimizer state among {world} ranks", "a gather of the weights every step"
        elif kind == "no optimizer scratch":
            what, cost = "use a fused optimizer: its temporaries go (fused=True)", "none"
        else:
            what, cost = f"make temporaries of {size(block)} in {role} in two halves", "more, smaller kernels"
        how = f"{at_peak} of the peak; the run played without"
        rows.append(_row(what, saves, found["peak"][i], cost, how) | {"cost_share": share})
    return rows


# Of the wall time of the iterations, by layer with what is inside it; on the host, as far as the marks see it.
def _forward_shares(drawn: dict[str, Any]) -> dict[str, float]:
    table, phases = drawn["layer_table"], drawn["phases"]
    begin = next((ns for ns, segment in zip(phases["ns"], phases["segment"]) if segment > 0), 0)
    whole = drawn["end_ns"] - begin
    rows = zip(table["layer"], table["pass"], table["ns"])
    return {drawn["layers"][layer]: ns / whole for layer, which, ns in rows if which == "F" and whole > 0}


def _above(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def _called(path: str, pattern: str) -> bool:
    """The path is the pattern's, where * stands for a number."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(w in (p, "*" if p.isdigit() else p) for p, w in zip(parts, wanted))


def _from_allocators(of_device: dict[str, Any]) -> list[dict[str, Any]]:
    held = {row["name"]: row["held_bytes"] for row in of_device["allocators"]}
    native = held["PyTorch native"]
    rows = [
        _row(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            native - held["expandable_segments"],
            held["expandable_segments"],
            "none",
            "held on the device against PyTorch's native allocator; simulated from the trace",
        )
    ]
    if "stalloc, planned" in held:
        rows.append(
            _row(
                "run with the plan (STALLOC_MODE=Alloc)",
                native - held["stalloc, planned"],
                held["stalloc, planned"],
                "none",
                "held on the device against PyTorch's native allocator; predicted by the planner",
            )
        )
    return rows


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
