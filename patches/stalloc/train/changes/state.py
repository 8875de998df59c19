"""An optimizer whose state lies on the host except during its steps. Either all of its bytes move, or none."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_offloaded: weakref.WeakSet[Any] = weakref.WeakSet()


def offload(optimizer: Any) -> Callable[[], None]:
    """Keeps the state on the host between two steps; returns a function that undoes this. A second call does nothing.
    TypeError: the optimizer has no hooks of torch.optim.Optimizer."""
    if optimizer in _offloaded:
        return lambda: None
    state = _State(optimizer)
    try:
        handles = [
            optimizer.register_step_pre_hook(lambda *_: state.to_devices()),
            optimizer.register_step_post_hook(lambda *_: state.to_host()),
        ]
    except AttributeError as error:
        raise TypeError(f"{type(optimizer).__name__} is not one of torch.optim's: {error}") from error
    _offloaded.add(optimizer)

    def undo() -> None:
        _offloaded.discard(optimizer)
        for handle in handles:
            handle.remove()

    return undo


class _State:
    """Tensors keep their identity: whatever holds one sees it where it lies."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)  # its hooks hold this
        self._away: list[tuple[weakref.ref[torch.Tensor], torch.device]] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def to_host(self) -> None:
        optimizer = self._optimizer()
        tensors = _movable(optimizer)
        hosts = [torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda) for tensor in tensors]
        for tensor, host in zip(tensors, hosts):
            host.copy_(tensor, non_blocking=tensor.is_cuda)
        _wait(tensor.device for tensor in tensors)  # copies end before their sources go, and before anybody reads them
        self._away += [(weakref.ref(tensor), tensor.device) for tensor in tensors]
        _swap(tensors, hosts)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def to_devices(self) -> None:
        """Moves each back to its device. Tensors that were replaced meanwhile, as by load_state_dict(), are there
        already."""
        away = [(tensor, device) for made, device in self._away if (tensor := made()) is not None]
        away = [(tensor, device) for tensor, device in away if tensor.device.type == "cpu"]
        back = [tensor.to(device, non_blocking=True) for tensor, device in away]
        _swap([tensor for tensor, _ in away], back)
        self._away = []


def _swap(tensors: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> None:
    for tensor, other in zip(tensors, others):
        tensor.data = other


def _wait(devices: Iterable[torch.device]) -> None:
    for device in set(devices):
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def _movable(optimizer: Any) -> list[torch.Tensor]:
    """Tensors of the state that are on a device and alone in their storage: none that shares it with weights, gradients
    or another tensor, and no single numbers. A tensor made of others, such as a DTensor, yields those."""
    groups = (group["params"] for group in optimizer.param_groups)
    weights = [tensor for group in groups for weight in group for tensor in (weight, weight.grad)]
    shared = {_storage(part) for tensor in weights for part in _parts(tensor)}
    leaves = (leaf for value in optimizer.state.values() for leaf in tree_leaves(value))
    found = {id(part): part for leaf in leaves for part in _parts(leaf)}
    sharing = collections.Counter(map(_storage, found.values()))
    return [
        tensor
        for tensor in found.values()
        if _on_device(tensor)
        and tensor.dim() > 0
        and tensor.untyped_storage().nbytes() == tensor.nbytes
        and sharing[_storage(tensor)] == 1
        and _storage(tensor) not in shared
    ]


def _on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type not in ("cpu", "meta")


def _parts(value: Any) -> Iterator[torch.Tensor]:
    if not isinstance(value, torch.Tensor):
        return
    if is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _parts(getattr(value, name))
    elif type(value) in _PLAIN and value.layout is torch.strided:
        yield value


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
