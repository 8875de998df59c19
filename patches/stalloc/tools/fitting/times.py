"""How long steps and layers of a traced run take: what step_model.py and layer_times.py make of its files. Seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Optional

from stalloc.tools.fitting import layer_times, step_model
from stalloc.tools.fitting.replayed import TracedRun
from stalloc.tools.fitting.step_model import StepModel
from stalloc.tools.fitting.terms import Terms, total


@dataclasses.dataclass(frozen=True)
class Times:
    model: StepModel
    forward: dict[str, Terms]  # of layers, by name; empty where nothing is known of the device

    def again(self, names: Iterable[str]) -> Optional[Terms]:
        """What recomputing these layers takes of a micro-batch; None: not known of all of them."""
        names = list(names)
        if any(name not in self.forward for name in names):
            return None
        return total(self.forward[name] for name in names)


def times_of(
    run: TracedRun, first: dict[str, Any], other: Optional[dict[str, Any]], count: int, of_length: bool = False
) -> Times:
    """CollectError.

    Args:
        first, other: a device of `run.trace` and of `run.beside`, as Planner.traced tells of it.
        count: micro-batches of a traced step.
        of_length: sizes are lengths of sequences.
    """
    rest = max(0, first["step_ns"] - first["passes_ns"]) / 1e9
    beside = None if other is None else other["passes_ns"] / 1e9
    model = step_model.with_free_steps(
        step_model.from_traces(rest, first["passes_ns"] / 1e9, count, beside, run.ratio),
        run.free_steps(count),
        of_length=of_length,
        watched=run.watched_steps(),
    )
    if model.device is None:
        return Times(model, {})
    layers = [device["layers"] for device in (first, other) if device is not None]
    return Times(model, layer_times.forward_terms(list(zip(layers, run.traced_loads()))))
