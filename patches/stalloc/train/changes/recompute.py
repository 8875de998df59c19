"""A forward pass under torch's checkpoint: without re-entrance, with the random state and autocast of the first time.

torch's checkpoint keeps the state of the generators of those GPUs that its positional arguments are on. Modules are
called with keywords alone, with tensors inside objects, or without any, and draw random numbers on a GPU that none of
their arguments is on. So it is given an empty tensor on every GPU that the process uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def recomputed(forward: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Returns `forward` of the module and its arguments. Tensors that it saves for the backward pass are made anew
    there. Thread-safe."""
    if not torch.is_grad_enabled():
        return forward(module, *args, **kwargs)
    states_of = tuple(torch.empty(0, device=device) for device in devices_in_use())

    # Keywords are not handed to checkpoint, which has some of its own (debug, early_stop).
    def call(_: tuple[torch.Tensor, ...], *args: Any) -> Any:
        return forward(module, *args, **kwargs)

    return checkpoint(call, states_of, *args, use_reentrant=False, preserve_rng_state=True)


# torch.compile itself keeps the random state of recomputed code. Where it leaves the checkpoint out of its graph,
# this one runs as it is, and needs the devices.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def devices_in_use() -> tuple[torch.device, ...]:
    """The GPUs on which this process has a context. No random numbers were drawn on any other. For another accelerator:
    the current device."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not getattr(torch.get_device_module(accelerator), "_initialized", False):
        return ()
    if accelerator.type != "cuda":
        return (torch.device(accelerator.type, torch.accelerator.current_device_index()),)
    indices = range(torch.cuda.device_count())
    return tuple(torch.device("cuda", index) for index in indices if torch._C._cuda_hasPrimaryContext(index))
