"""Marks of MoE layers, whose sizes depend on the data: the layer and its steps, forward and backward.

The backward pass is seen by hooks on tensors; module hooks would put nodes into the graph, and with them memory.
"""

from __future__ import annotations

from typing import Any

import stalloc
from stalloc._patching import Function
from stalloc.megatron._loop import Loop


def layer(original: Function, loop: Loop) -> Function:
    """MoELayer.forward."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not loop.marks:
            return original(self, *args, **kwargs)
        name = _name(self)
        with stalloc.layer(name, "F"):
            result = original(self, *args, **kwargs)
        _mark_backward(result, name, loop)
        return result

    return forward


def step(original: Function, loop: Loop, what: str) -> Function:
    """A method of MoELayer: what schedules that overlap communication call by themselves, too."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not loop.marks:
            return original(self, *args, **kwargs)
        with stalloc.layer(f"{_name(self)}.{what}", "F"):
            return original(self, *args, **kwargs)

    return method


def _name(module: Any) -> str:
    return f"moe{getattr(module, 'layer_number', None) or 0}"


def _mark_backward(result: Any, name: str, loop: Loop) -> None:
    output = result[0] if isinstance(result, (tuple, list)) and result else result
    if not getattr(output, "requires_grad", False):
        return  # evaluation, or the forward pass of a checkpointed layer

    def begins(_: Any) -> None:
        if loop.marks:
            stalloc.layer(name, "B")

    output.register_hook(begins)
