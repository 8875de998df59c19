"""Figures that every form of a report shows, derived from the planner's JSON. Bytes; shares are in [0, 1]."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.core.sizes import size

_MAPPING_UNIT = 2 << 20
LAST_RUN = "stalloc, last run"
_AS_HIGH = 0.005  # of the peak: an iteration whose own is lower by less comes to it as well


def device_name(number: int) -> str:
    return "cpu" if number < 0 else f"device {number}"


def share(value: Optional[float]) -> str:
    return "-" if not value else f"{100 * value:.2f} %"


def device_figures(view: dict[str, Any], index: int) -> dict[str, Any]:
    """The figures of one device: peak, classes at it, and what each allocator reserves for it (`allocators`)."""
    report, drawn = view["rank"]["devices"][index], view["devices"][index]
    live = report["peak"]["live_bytes"]
    return {
        "device": report["device"],
        "peak_live_bytes": live,
        "peak_phase": report["peak"]["phase"],
        "by_class": report["peak"]["by_class"],
        "allocators": _allocators(report, drawn, live, _measured(view["summary"], report["device"])),
    }


def often(view: dict[str, Any], index: int) -> str:
    """In how many iterations as much is live as at the peak: "each of 4 iterations comes to it"; "" if in no other."""
    peaks = [count for count in view["devices"][index]["iterations"]["peak_live"][1:] if count]
    most = view["rank"]["devices"][index]["peak"]["live_bytes"]
    alike = sum(count >= (1 - _AS_HIGH) * most for count in peaks)
    if alike < 2:
        return ""
    return (
        f"each of {alike} iterations comes to it"
        if alike == len(peaks)
        else f"{alike} of {len(peaks)} iterations come to it"
    )


def detail(view: dict[str, Any], index: int) -> dict[str, Any]:
    """What a trace knows of the blocks at a device's peak: bytes that have a tensor's name (`names`), a layer by marks
    alone (`modules`), a stack (`stacks`), or neither name nor layer (`neither`)."""
    drawn = view["devices"][index]
    peak, layers = drawn["peak"], drawn["layers"]
    found = {"names": 0, "modules": 0, "stacks": 0, "neither": peak["omitted_bytes"]}
    for row, (block, count) in enumerate(zip(peak["bytes"], peak["count"])):
        named, layered = peak["tensors"][row] > 0, bool(layers[peak["layer"][row]])
        found["names" if named else "modules" if layered else "neither"] += block * count
        found["stacks"] += block * count if peak["stack"][row] else 0
    return found


def _allocators(
    report: dict[str, Any], drawn: dict[str, Any], live: int, measured: Optional[dict[str, Any]]
) -> list[dict[str, Any]]:
    rows = []

    def add(name: str, held: int, how: str) -> None:
        rows.append({"name": name, "held_bytes": held, "efficiency": live / held if held else 0.0, "how": how})

    simulated, plan = report["simulated"], drawn["plan"]
    add("PyTorch native", simulated["native_bytes"], "simulated from the trace")
    add("expandable_segments", simulated["expandable_segments_bytes"], "simulated from the trace")
    # An exact trace's heap on a CPU does not round requests up to 512 bytes: it says nothing of a device.
    if report["traced_held_peak_bytes"] >= live:
        add("as traced", report["traced_held_peak_bytes"], "measured while the trace was recorded")
    if plan is not None:
        arena = -(-plan["arena_bytes"] // _MAPPING_UNIT) * _MAPPING_UNIT
        # Varying blocks use the space above the slots: there the planner's trial is more exact than the sum of the two.
        predicted = round(live / plan["efficiency"]) if plan["efficiency"] else arena + plan["upstream_bytes"]
        add("stalloc, planned", predicted, "predicted by the planner")
    if measured is not None:
        # Another run may have another peak: its own live bytes are the numerator.
        rows.append(
            {
                "name": f"{LAST_RUN} ({measured['mode']})",
                "held_bytes": measured["held_peak_bytes"],
                "efficiency": measured["efficiency"],
                "how": f"measured; {size(measured['peak_live_bytes'])} live at its peak",
            }
        )
    return rows


def _measured(summary: Optional[dict[str, Any]], device: int) -> Optional[dict[str, Any]]:
    """The last run's figures of a device, unless it was the one that traced."""
    if summary is None or summary.get("mode") in (None, "Trace"):
        return None
    found = next((entry for entry in summary.get("devices", [summary]) if entry.get("device", device) == device), None)
    if found is None or not found.get("held_peak_bytes"):
        return None
    return {
        "mode": summary["mode"],
        "held_peak_bytes": found["held_peak_bytes"],
        "peak_live_bytes": found["peak_live_bytes"],
        "efficiency": found["peak_live_bytes"] / found["held_peak_bytes"],
    }


def rank_rows(views: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a rank and device, with what is dynamic at the peak and in the run."""
    rows = []
    for view in views:
        for index, report in enumerate(view["rank"]["devices"]):
            figures = device_figures(view, index)
            held = {row["name"]: row["held_bytes"] for row in figures["allocators"]}
            segments = report["segments"][1:]
            rows.append(
                {
                    "rank": view["rank"]["rank"],
                    "place": view.get("place", ""),
                    "device": report["device"],
                    "peak_live_bytes": figures["peak_live_bytes"],
                    "peak_phase": figures["peak_phase"],
                    "by_class": figures["by_class"],
                    "native_bytes": held["PyTorch native"],
                    "expandable_segments_bytes": held["expandable_segments"],
                    "traced_bytes": held.get("as traced"),
                    "planned_bytes": held.get("stalloc, planned"),
                    "run_bytes": next((held[name] for name in held if name.startswith(LAST_RUN)), None),
                    "requests": max((segment["requests"] for segment in segments), default=0),
                    "dynamic_bytes": max(view["devices"][index]["iterations"]["dynamic_peak"], default=0),
                }
            )
    return rows


def imbalance(values: Sequence[int]) -> dict[str, float]:
    """The unevenness of ranks: the greatest over the mean, and the spread. Empty: all zero."""
    if not values:
        return {"greatest": 0, "least": 0, "mean": 0.0, "greatest_over_mean": 0.0}
    mean = statistics.fmean(values)
    return {
        "greatest": max(values),
        "least": min(values),
        "mean": mean,
        "greatest_over_mean": max(values) / mean if mean else 0.0,
    }
