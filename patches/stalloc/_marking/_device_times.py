"""Marks at the device's time (STALLOC_TRACE_TIMES=1): the host waits for the device before it marks a pass, the
optimizer, or a layer, so that what lies between two marks is how long the device took, too.

It waits at models, at layers that a model is a chain of, and at their parts; not deeper, so that a step is a few
percent longer and no more. Never while a graph is captured.
"""

from __future__ import annotations

from typing import Any

from stalloc._marking._marks import LAYER, MarkSink


def behind_the_device(sink: MarkSink, torch: Any) -> MarkSink:
    """A sink that waits for the device, then does what `sink` does. Any thread may call it."""

    def waits(kind: int, *rest: Any) -> object:
        waited_for = kind != LAYER or is_coarse((rest[4] or b"").decode())
        if waited_for and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return sink(kind, *rest)

    return waits


def is_coarse(layer: str) -> bool:
    """A model, a layer of a chain, or a part of one: "GPT", "GPT.blocks.3", "GPT.blocks.3.mlp"."""
    parts = layer.split(".")
    return len(parts) == 1 or parts[-1].isdigit() or parts[-2].isdigit()
