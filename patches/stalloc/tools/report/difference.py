"""Two runs side by side: what the second has more or less of at its peak, and how it differs. Bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stalloc.tools.report import figures


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Compares the first devices of two views. Every change is `after` minus `before`.

    What one of them has no data of is no change: `not_compared` says what is left out for that, a sentence each.
    """
    devices = [figures.device_figures(view, 0) for view in (before, after)]
    peaks = [device["peak_live_bytes"] for device in devices]
    sites = [_by_call_site(view) for view in (before, after)]
    layers = _Layers(before, after)
    held = [{row["name"]: row["held_bytes"] for row in device["allocators"]} for device in devices]
    return {
        "peak_live_bytes": {"before": peaks[0], "after": peaks[1], "change": peaks[1] - peaks[0]},
        "peak_phase": {"before": devices[0]["peak_phase"], "after": devices[1]["peak_phase"]},
        "by_class": _changes(devices[0]["by_class"], devices[1]["by_class"]),
        "by_layer": _changes(*(_by_layer(view, layers) for view in (before, after))),
        "by_call_site": _changes(*sites) if all(sites) else [],
        "blocks": _block_changes(before, after, layers),
        "phases": _changes(*(_phase_peaks(view) for view in (before, after))),
        "allocators": _changes(*({name: held[i][name] for name in held[i] if name in held[1 - i]} for i in (0, 1))),
        "plan": _plan_changes(before, after),
        "not_compared": [*layers.not_compared, *_only_one(sites, held)],
    }


class _Layers:
    """The blocks whose layers both traces know: those of named tensors, those of module marks, or none."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.not_compared: list[str] = []
        known = [figures.detail(view, 0) for view in (before, after)]
        self._named = self._both(known, "names", "tensors", "STALLOC_TRACE_NAMES")
        self._marked = self._both(known, "modules", "layers of activations", "STALLOC_TRACE_MODULES")

    def of(self, drawn: dict[str, Any], row: int) -> str:
        """The layer of a row of the peak; empty where one of the two traces could not know it."""
        peak = drawn["peak"]
        known = self._named if peak["tensors"][row] else self._marked
        return str(drawn["layers"][peak["layer"][row]]) if known else ""

    def _both(self, known: list[dict[str, Any]], key: str, what: str, variable: str) -> bool:
        has = [bool(entry[key]) for entry in known]
        if has[0] != has[1]:
            which, other = ("A", "B") if has[0] else ("B", "A")
            self.not_compared.append(f"{what}: only {which} has them; trace {other} with {variable}=1")
        return all(has)


def _only_one(sites: list[dict[str, int]], held: list[dict[str, int]]) -> list[str]:
    notes = []
    if bool(sites[0]) != bool(sites[1]):
        which, other = ("A", "B") if sites[0] else ("B", "A")
        notes.append(f"call sites: only {which} has them; trace {other} with STALLOC_TRACE_STACKS=1")
    for at, run in enumerate("AB"):
        notes += [f"allocator {name}: only {run} has its figure" for name in held[at] if name not in held[1 - at]]
    return notes


def curve(view: dict[str, Any], name: str) -> dict[str, Any]:
    """Live bytes of the first device over its iterations; `iteration` 2.5 is the middle of iteration 2, by events."""
    drawn = view["devices"][0]
    phases, series = drawn["phases"], drawn["timeline"]
    begins: dict[int, int] = {}
    for segment, event in zip(phases["segment"], phases["event"]):
        begins.setdefault(segment, event)
    starts = [*begins.values(), drawn["events"]]
    iterations = []
    at = 0
    for event in series["event"]:
        while at + 2 < len(starts) and event >= starts[at + 1]:
            at += 1
        iterations.append(round(at - 1 + (event - starts[at]) / max(1, starts[at + 1] - starts[at]), 4))
    return {"name": name, "iteration": iterations, "live": [sum(point) for point in zip(*series["by_class"])]}


def _changes(before: dict[str, int], after: dict[str, int]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys([*before, *after]))
    rows = [
        {
            "name": name,
            "before": before.get(name),
            "after": after.get(name),
            "change": after.get(name, 0) - before.get(name, 0),
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: -abs(int(row["change"] or 0)))


def _by_layer(view: dict[str, Any], layers: _Layers) -> dict[str, int]:
    drawn = view["devices"][0]
    peak, total = drawn["peak"], Counter[str]()
    for row, (count, block) in enumerate(zip(peak["count"], peak["bytes"])):
        total[layers.of(drawn, row) or "in no known layer"] += count * block
    return dict(total) if len(total) > 1 else {}


def _by_call_site(view: dict[str, Any]) -> dict[str, int]:
    """Empty where the trace has no stacks."""
    drawn = view["devices"][0]
    peak, total = drawn["peak"], Counter[str]()
    if not any(peak["stack"]):
        return {}
    for stack, count, block in zip(peak["stack"], peak["count"], peak["bytes"]):
        total[drawn["stacks"]["call_site"][stack] or "from no known place"] += count * block
    return dict(total)


# The greatest peak of each phase, whichever iteration it is in.
def _phase_peaks(view: dict[str, Any]) -> dict[str, int]:
    phases = view["devices"][0]["phases"]
    peaks: dict[str, int] = {}
    for name, live in zip(phases["name"], phases["peak_live"]):
        role = name.partition(", ")[2] or name
        peaks[role] = max(live, peaks.get(role, 0))
    return peaks


def _groups(view: dict[str, Any], layers: _Layers) -> Counter[tuple[str, str, str, int]]:
    drawn = view["devices"][0]
    peak, counts = drawn["peak"], Counter[tuple[str, str, str, int]]()
    for i, block in enumerate(peak["bytes"]):
        key = (
            view["classes"][peak["class"][i]],
            layers.of(drawn, i),
            drawn["roles"][peak["role"][i]],
            block,
        )
        counts[key] += peak["count"][i]
    return counts


def _block_changes(before: dict[str, Any], after: dict[str, Any], layers: _Layers) -> list[dict[str, Any]]:
    one, other = _groups(before, layers), _groups(after, layers)
    rows = [
        {
            "class": key[0],
            "layer": key[1],
            "phase": key[2],
            "bytes": key[3],
            "before": one[key],
            "after": other[key],
            "change": (other[key] - one[key]) * key[3],
        }
        for key in {**one, **other}
        if one[key] != other[key]
    ]
    return sorted(rows, key=lambda row: -abs(int(row["change"])))


def _plan_changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    plans = [view["devices"][0]["plan"] for view in (before, after)]
    if None in plans:
        return []
    keys = ("arena_bytes", "lower_bound_bytes", "upstream_bytes", "slots")
    return _changes(*({key: plan[key] for key in keys} for plan in plans))
