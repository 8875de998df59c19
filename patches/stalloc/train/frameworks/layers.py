"""Marks of MoE layers in any model, found by their names and hooked as modules.

Hooks look and return nothing, so outputs stay what they are; the backward pass is seen by a hook on the output tensor.
In what torch.compile compiles they do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from stalloc.train import api
from stalloc.train.marking.compilations import leave_uncompiled, traced

# MixtralSparseMoeBlock, Qwen3MoeSparseMoeBlock, DeepseekV3MoE, MoELayer, MoE (DeepSpeed); not MoERouter or MoEConfig.
_MOE_CLASS = re.compile(r"(?i:moe)(Block|Layer|MLP|Mlp|FFN|FeedForward)?$")
_MARKED_ITSELF = "megatron.core."
_HOOKED = "_stalloc_marked"


def mark_moe_layers(model: Any) -> int:
    """Hooks the MoE layers of `model` that nobody has hooked yet, and returns how many these are."""
    modules = model if isinstance(model, (list, tuple)) else [model]
    found = 0
    for part in modules:
        for name, module in part.named_modules():
            if _is_moe_layer(module) and not getattr(module, _HOOKED, False):
                _hook(module, f"moe.{name}")
                found += 1
    return found


def _is_moe_layer(module: Any) -> bool:
    kind = type(module)
    if any(base.__module__.startswith(_MARKED_ITSELF) for base in kind.__mro__ if "MoE" in base.__name__):
        return False
    return _MOE_CLASS.search(kind.__name__) is not None and any(True for _ in module.children())


def _hook(module: Any, name: str) -> None:
    setattr(module, _HOOKED, True)
    open_marks: list[Any] = []

    def begins(*_: Any) -> None:
        if traced():
            return
        mark = api.layer(name, "F")
        mark.__enter__()
        open_marks.append(mark)

    def ends(_: Any, __: Any, output: Any) -> None:
        if traced():
            return
        if open_marks:
            open_marks.pop().__exit__(None, None, None)
        _mark_backward(output, lambda _: api.layer(name, "B"))

    leave_uncompiled(begins, ends)
    module.register_forward_pre_hook(begins)
    module.register_forward_hook(ends)


def _mark_backward(output: Any, begins: Callable[[Any], object]) -> None:
    tensor = output[0] if isinstance(output, (tuple, list)) and output else output

    def hook(gradient: Any) -> None:
        begins(gradient)

    leave_uncompiled(hook)
    if getattr(tensor, "requires_grad", False):
        tensor.register_hook(hook)
