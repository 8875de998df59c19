"""A forward pass under torch's checkpoint: without re-entrance, with the random state and autocast of the first time.

torch's checkpoint keeps the state of the generators of those GPUs that its positional arguments are on. Modules are
called with keywords alone, with tensors inside objects, or without any, and draw random numbers on a GPU that none of
their arguments is on. So it is given an empty tensor on every GPU that the process uses.

What a recomputation saves goes to torch's checkpoint, and is in the graph of the recomputation, too. torch drops that
graph, unless a module keeps one of its tensors, as the layers of Megatron-LM do: then all that was recomputed stays
until the next forward pass. So the graph lets go of its tensors when the recomputation is over.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def recomputed(forward: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Returns `forward` of the module and its arguments. Tensors that it saves for the backward pass are made anew
    there. Thread-safe."""
    if not torch.is_grad_enabled():
        return forward(module, *args, **kwargs)
    states_of = tuple(torch.empty(0, device=device) for device in devices_in_use())
    runs = itertools.count()

    # Keywords are not handed to checkpoint, which has some of its own (debug, early_stop).
    def call(_: tuple[torch.Tensor, ...], *args: Any) -> Any:
        if torch.compiler.is_compiling() or next(runs) == 0:
            return forward(module, *args, **kwargs)
        with _graph_without_tensors():
            return forward(module, *args, **kwargs)

    return checkpoint(call, states_of, *args, use_reentrant=False, preserve_rng_state=True)


@contextlib.contextmanager
def _graph_without_tensors() -> Iterator[None]:
    """Under the hooks of a recomputation. Backward passes through its graph may run inside, and fail afterwards."""
    pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(False)
    held: list[Any] = []

    def hold(tensor: torch.Tensor) -> int:
        held.append(pack(tensor))
        return len(held) - 1

    def find(place: int) -> Any:
        if place >= len(held):
            raise RuntimeError("the graph of a recomputed module has no tensors after its recomputation")
        return unpack(held[place])

    for name in ("_checkpoint_internal", "_user_hooks"):  # by which a checkpoint inside finds the user's hooks
        if hasattr(pack, name):
            setattr(hold, name, getattr(pack, name))
    try:
        with torch.autograd.graph.saved_tensors_hooks(hold, find):
            yield
    finally:
        held.clear()
        vars(hold).clear()


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
