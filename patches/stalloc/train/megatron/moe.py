"""Marks of MoE layers, whose sizes depend on the data: the layer and its steps, forward and backward.

The backward pass is seen by hooks on tensors; module hooks would put nodes into the graph, and with them memory.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from stalloc.train import api
from stalloc.train import session as _session
from stalloc.train.marking.compilations import traced
from stalloc.train.megatron.loop import Loop
from stalloc.train.patching import Function


def layer(original: Function, loop: Loop) -> Function:
    """MoELayer.forward."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if traced() or not loop.marks:
            return original(self, *args, **kwargs)
        name = _name(self)
        with api.layer(name, "F"):
            result = original(self, *args, **kwargs)
        _mark_backward(result, name, loop)
        return result

    return forward


def step(original: Function, loop: Loop, what: str) -> Function:
    """A method of MoELayer: what schedules that overlap communication call by themselves, too."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if traced() or not loop.marks:
            return original(self, *args, **kwargs)
        with api.layer(f"{_name(self)}.{what}", "F"):
            return original(self, *args, **kwargs)

    return method


def experts(original: Function, loop: Loop) -> Function:
    """MoELayer.routed_experts_compute, which also knows how many tokens each expert got."""
    marked = step(original, loop, "experts")

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = _session.marked()
        tracing = None if session is None else session.tracing
        dispatcher: Any = getattr(self, "token_dispatcher", None)
        if tracing is None or not loop.marks or not hasattr(dispatcher, "dispatch_postprocess"):
            return marked(self, *args, **kwargs)
        deal = dispatcher.dispatch_postprocess

        def watched(*inner: Any, **named: Any) -> Any:
            dealt = deal(*inner, **named)
            counts = _counts(dealt)
            if counts is not None and not _in_backward():  # a recomputed layer deals its tokens again
                tracing.experts(int(getattr(self, "layer_number", None) or 0), counts)
            return dealt

        dispatcher.dispatch_postprocess = watched
        try:
            return marked(self, *args, **kwargs)
        finally:
            del dispatcher.dispatch_postprocess

    return method


def _counts(dealt: Any) -> Optional[list[int]]:
    """The tokens in (hidden states, tokens of each expert, probabilities); None if reading them would wait for a
    device."""
    tokens: Any = dealt[1] if isinstance(dealt, tuple) and len(dealt) > 1 else None
    if getattr(getattr(tokens, "device", None), "type", None) != "cpu":
        return None
    return [int(count) for count in tokens.tolist()]


def _in_backward() -> bool:
    torch: Any = sys.modules.get("torch")
    current = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return current is not None and int(current()) != -1


def _name(module: Any) -> str:
    return f"moe{getattr(module, 'layer_number', None) or 0}"


def _mark_backward(result: Any, name: str, loop: Loop) -> None:
    output = result[0] if isinstance(result, (tuple, list)) and result else result
    if not getattr(output, "requires_grad", False):
        return  # evaluation, or the forward pass of a checkpointed layer

    def begins(_: Any) -> None:
        if loop.marks:
            api.layer(name, "B")

    output.register_hook(begins)
