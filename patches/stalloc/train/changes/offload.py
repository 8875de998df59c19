"""A forward pass whose saved tensors are on the host until the backward pass."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Optional

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)  # not classes that look like one and hold others


@dataclasses.dataclass(frozen=True)
class _OnHost:
    tensor: torch.Tensor
    device: torch.device
    size: torch.Size


@dataclasses.dataclass(frozen=True)
class _Stays:
    tensor: torch.Tensor
    version: int


# Hooks cannot be in a compiled graph: torch.compile leaves it before them, and compiles what runs inside.
@torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
def offloaded(forward: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns `forward` of the module and its arguments. The module's weights and buffers stay on the device,
    where they are anyway, and so do tensors without a storage of their own: sparse ones, subclasses. Thread-safe."""
    if not torch.is_grad_enabled():
        return forward(module, *args, **kwargs)
    stay = {None, *map(_storage, itertools.chain(module.parameters(), module.buffers()))}

    def pack(tensor: torch.Tensor) -> Any:
        leaves = _can_leave(tensor) and _storage(tensor) not in stay
        return _to_host(tensor) if leaves else _Stays(tensor, tensor._version)

    with torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
        return forward(module, *args, **kwargs)


def _can_leave(tensor: torch.Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type not in ("cpu", "meta")


def _storage(tensor: torch.Tensor) -> Optional[int]:
    """Its identity; None: there is no storage, or it cannot be queried."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def _to_host(tensor: torch.Tensor) -> _OnHost:
    """A dimension that repeats one value, as in an expanded mask, is copied once. A lazy conjugation or negation
    is resolved before the copy: torch would resolve it on the host, while the copy still runs."""
    once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    once = once.resolve_conj().resolve_neg()
    host = torch.empty_like(once, device="cpu", pin_memory=tensor.is_cuda)
    host.copy_(once, non_blocking=tensor.is_cuda)
    if tensor.is_cuda:  # it may be freed before the copy has ended, and may be another stream's
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return _OnHost(host, tensor.device, tensor.size())


def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, _OnHost):
        return packed.tensor.to(packed.device, non_blocking=True).expand(packed.size)
    tensor: torch.Tensor = packed.tensor
    if tensor._version != packed.version:  # as torch itself does where there are no hooks
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{tuple(tensor.shape)} is at version {tensor._version}; expected version {packed.version} instead"
        )
    return tensor
