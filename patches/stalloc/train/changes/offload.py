"""A forward pass whose saved tensors are on the host until the backward pass: transfers.py copies them while others
run, stations.py has the order."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from stalloc.core import log
from stalloc.train.changes import stations
from stalloc.train.changes.transfers import ChangedError, Transfer, lane_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)  # not classes that look like one and hold others
_STAY = {"cpu", "meta"}  # kinds of devices
_LEAST = 32 << 10  # bytes: what is smaller stays, since a copy takes longer to start than to run
_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"
_told_of_graphs = False


class _Stays:
    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = tensor._version


class _Away:
    """One saved tensor, of bytes that others may have been saved with."""

    def __init__(self, transfer: Transfer, saved: torch.Tensor, once: torch.Size, stride: tuple[int, ...]) -> None:
        """`once`: its size without repeated dimensions, as the bytes have it."""
        self._transfer = transfer
        self._dtype, self._size, self._once, self._stride = saved.dtype, saved.size(), once, stride
        transfer.add(self)

    @torch.no_grad()
    def back(self) -> torch.Tensor:
        try:
            on_device, begin = self._transfer.take(self)
        except ChangedError:
            raise RuntimeError(f"{_CHANGED}: {tuple(self._size)}, while it was copied to the host") from None
        tensor = torch.empty(0, dtype=self._dtype, device=on_device.device)
        tensor.set_(on_device.untyped_storage(), begin // self._dtype.itemsize, self._once, self._stride)
        return tensor.expand(self._size)

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_stride"):
            self._transfer.remove(self)


# Hooks cannot be in a compiled graph: torch.compile leaves it before them, and compiles what runs inside.
@torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
def offloaded(forward: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns `forward` of the module and its arguments. The module's weights and buffers stay on the device,
    where they are anyway, and so do small tensors and those without a storage of their own: sparse ones, subclasses.
    While a CUDA graph is captured all stay. Thread-safe."""
    if not torch.is_grad_enabled():
        return forward(module, *args, **kwargs)
    if not stations.is_saving() or _is_capturing():  # a checkpoint counts tensors: they pass hooks each time
        with torch.autograd.graph.saved_tensors_hooks(_Stays, _unpack):
            return forward(module, *args, **kwargs)
    stay = {None, *map(_storage, itertools.chain(module.parameters(), module.buffers()))}

    def pack(tensor: torch.Tensor) -> Any:
        leaves = _can_leave(tensor) and _storage(tensor) not in stay and not _is_weight(tensor)
        return _to_host(tensor) if leaves else _Stays(tensor)

    with stations.stop() as returned:
        with torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
            output = forward(module, *args, **kwargs)
        returned(output)
        return output


def _is_capturing() -> bool:
    global _told_of_graphs
    if not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        return False
    if not _told_of_graphs:
        _told_of_graphs = True
        log.info("offloaded modules: what they save stays on the device while a CUDA graph is captured")
    return True


def _can_leave(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and tensor.device.type not in _STAY
        and tensor.nbytes >= _LEAST
    )


def _is_weight(tensor: torch.Tensor) -> bool:
    """A parameter of whatever module, a view of one, or what autocast has made of it and keeps."""
    base = tensor._base if tensor._base is not None else tensor
    if isinstance(base, torch.nn.Parameter):
        return True
    made = base.grad_fn
    if made is None or made.name() != "ToCopyBackward0":
        return False
    return isinstance(getattr(made.next_functions[0][0], "variable", None), torch.nn.Parameter)


def _storage(tensor: torch.Tensor) -> Optional[int]:
    """Its identity; None: there is no storage, or it cannot be queried."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


@torch.compiler.disable  # type: ignore[untyped-decorator]
@torch.no_grad()
def _to_host(tensor: torch.Tensor) -> _Away:
    """What a tensor has once for a whole dimension, as an expanded mask does, is copied once, and so are bytes that
    several tensors of a pass have. REQUIRES: within stations.stop()."""
    once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    stride = torch.empty_like(once, device="meta").stride()  # of a copy without gaps
    lazy = once.is_conj() or once.is_neg()
    is_whole = stride == once.stride() and not lazy
    running, key = stations.current(), _key(once, is_whole)
    found = running.known.get(key)
    transfer = found[1]() if found is not None else None
    if transfer is None:
        source = once if is_whole else once.clone().resolve_conj().resolve_neg()
        begin, count = int(source.storage_offset()) * source.itemsize, source.numel() * source.itemsize
        transfer = Transfer(lane_of(tensor.device), source, begin, count)
        # The reference keeps the storage's name, so that no later storage has it.
        name = StorageWeakRef(once.untyped_storage())  # type: ignore[no-untyped-call]
        running.known[key] = (name, weakref.ref(transfer))
        running.sent(transfer)
    running.add(transfer)
    return _Away(transfer, tensor, once.size(), stride)


def _key(once: torch.Tensor, is_whole: bool) -> Any:
    """The same for tensors that have the same bytes. What has no gaps may have them in any shape."""
    name, begin = _storage(once), once.storage_offset() * once.itemsize
    if is_whole:
        return name, begin, once.nbytes, once._version
    lazily = (once.is_conj(), once.is_neg())
    return name, begin, once.dtype, once.size(), once.stride(), lazily, once._version


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, _Away):
        return packed.back()
    tensor: torch.Tensor = packed.tensor
    if tensor._version != packed.version:  # as torch itself does where there are no hooks
        raise RuntimeError(
            f"{_CHANGED}: {tuple(tensor.shape)} is at version {tensor._version}; "
            f"expected version {packed.version} instead"
        )
    return tensor
