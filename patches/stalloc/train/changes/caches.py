"""Keys and values that layers store for later calls (`use_cache` in transformers): a layer that is recomputed would
store them once more. While a model trains they are left out; its configuration, which generate() and save_pretrained()
read, stays as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from stalloc.train.marking import arguments


def leave_out(model: Any) -> Callable[[], None]:
    """Leaves them out of each call that makes gradients; returns a function that undoes this. A second call does
    nothing. A call that requests them by an argument while the model does not train gets them."""
    handles = [
        module.register_forward_pre_hook(functools.partial(_without, place), with_kwargs=True)
        for module, place in arguments.caching(model)
        if not any(getattr(hook, "func", None) is _without for hook in module._forward_pre_hooks.values())
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _without(place: int, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not torch.is_grad_enabled():
        return None
    wanted = args[place] if place < len(args) else kwargs.get(arguments.USE_CACHE)
    if wanted and not module.training:
        return None
    if place < len(args):
        return (*args[:place], False, *args[place + 1 :]), kwargs
    return args, {**kwargs, arguments.USE_CACHE: False}
