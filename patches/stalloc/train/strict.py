"""STALLOC_STRICT=1 in mode Alloc: a plan that turns out to be another program's ends the run, after an iteration."""

from __future__ import annotations

from typing import Any, Callable

from stalloc.core.sizes import size

_CPU = -1


class ForeignPlanError(RuntimeError):
    """The run does not resemble its plan, or has given it up."""


def foreign_plan(stats: dict[str, Any]) -> str:
    """The evidence in stats() that the plan of a device is of another program; empty if there is none."""
    for device in stats.get("devices", []):
        if not device.get("unlike") and not device.get("gave_up"):
            continue
        last, native = device.get("last_iteration", {}), device.get("native", {}).get("held_bytes", 0)
        would = f"; PyTorch's allocator would hold {size(native)}" if native else ""
        name = "the CPU" if device["device"] == _CPU else f"device {device['device']}"
        return (
            f"{name}: {device['planned_hits']} of {device['requests']} requests had slots in the "
            f"plan so far, and the last iteration held {size(last['held_peak_bytes'])} for "
            f"{size(last['peak_live_bytes'])} live{would}"
        )
    return ""


def checked(
    mark: Callable[..., object], begins: tuple[int, int], stats: Callable[[], dict[str, Any]], plan: str
) -> Callable[..., None]:
    """The sink of marks, which raises ForeignPlanError after one that begins an iteration (its kind and edge)."""

    def marked(kind: int, edge: int, *rest: Any) -> None:
        mark(kind, edge, *rest)
        if (kind, edge) != begins:
            return
        why = foreign_plan(stats())
        if why:
            raise ForeignPlanError(f"STALLOC_STRICT=1: the plan {plan} is of another program than this: {why}")

    return marked
