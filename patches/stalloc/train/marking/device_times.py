"""Marks at the device's time (STALLOC_TRACE_TIMES=1): the host waits for the device before it marks a pass, the
optimizer, or a layer, so that what lies between two marks is how long the device took, too.

It waits at models, at layers that a model is a chain of, at their parts and the parts of those; not deeper, so that a
step is some percent longer and no more. `stalloc fit` chooses none that lie deeper (planner/whatif/fit_search.cc). It
never waits while a graph is captured, and not after the trace.
"""

from __future__ import annotations

from typing import Any, Callable

from stalloc.train.marking.marks import LAYER, MarkSink

_DEPTH = 3  # of the last so many parts of a path one is a number


def after_the_device(sink: MarkSink, torch: Any, is_running: Callable[[], bool] = lambda: True) -> MarkSink:
    """A sink that waits for the device while the trace runs, then does what `sink` does. Any thread may call it."""

    def waits(kind: int, *rest: Any) -> object:
        waited_for = kind != LAYER or is_coarse((rest[4] or b"").decode())
        if waited_for and is_running() and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return sink(kind, *rest)

    return waits


def is_coarse(layer: str) -> bool:
    """A model, a layer of a chain, or a part of one: "GPT", "GPT.blocks.3", "GPT.blocks.3.mlp.up"."""
    parts = layer.split(".")
    return len(parts) == 1 or any(part.isdigit() for part in parts[-_DEPTH:])
