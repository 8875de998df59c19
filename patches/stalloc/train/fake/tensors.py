"""Which tensors are fake: those on the traced device, and what is made of them; CPU tensors of data stay what they are.

Of a GPU's trace, real tensors of the CPU are computed with as ever (data loading, tokenizers, schedules), so that
programs which go by their values go on. Large ones that are requested of the CPU (a model that is built there and moved
later) are fake: their memory is what this is to do without.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from stalloc.train.fake import kernels
from stalloc.train.fake.blocks import Blocks
from stalloc.train.fake.patches import Patches
from stalloc.train.fake.unknown import FakeTraceError, UnknownValues, place
from stalloc.train.fake.values import KnownValues
from stalloc.train.fake.workspaces import Workspaces

_aten = torch.ops.aten
_LARGE = 1 << 20  # bytes of a CPU tensor that is fake all the same
_FACTORIES = frozenset(
    getattr(getattr(_aten, name), overload)
    for name, overload in (
        ("empty", "memory_format"),
        ("empty_strided", "default"),
        ("zeros", "default"),
        ("ones", "default"),
        ("full", "default"),
        ("randn", "default"),
        ("rand", "default"),
    )
)
# What backward passes write into zeros: in place, but for fake tensors.
_INTO_ZEROS = frozenset({_aten.index_add.default, _aten.scatter_add.default, _aten.index_put.default})
_OF_VALUES = (fake_tensor.DynamicOutputShapeException, fake_tensor.DataDependentOutputException)
_UNSUPPORTED = (
    fake_tensor.UnsupportedOperatorException,
    fake_tensor.UnsupportedFakeTensorException,
    NotImplementedError,
)


class DeviceOfFakes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """The dispatch mode. Storages that operators return on the device are reported to `blocks`."""

    def __init__(
        self,
        device: str,
        blocks: Blocks,
        values: UnknownValues,
        known: KnownValues,
        workspaces: Optional[Workspaces] = None,
    ) -> None:
        """`workspaces`: of a GPU's libraries; None: on the CPU."""
        super().__init__(allow_non_fake_inputs=True)
        self._known = known
        self._device = device
        self._blocks = blocks
        self._values = values
        self._workspaces = workspaces
        self._inside = threading.local()
        self._lock = threading.RLock()
        self._composite: dict[Any, bool] = {}

    def on_every_thread(self, patches: Patches) -> None:
        """Threads that Python starts from now on make fake tensors, too: modes are a thread's own."""
        original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def bootstrap(thread: threading.Thread) -> None:
            torch._C._set_dispatch_mode(self)
            original(thread)

        patches.set(threading.Thread, "_bootstrap_inner", bootstrap)

    @property
    def avoid_device_init(self) -> bool:
        return True  # whatever torch.cuda.is_available() answers: no tensor of this process reaches a device

    def one_thread_at_a_time(self, patches: Patches) -> None:
        """Tensors of this mode may be used by threads that the program starts; torch's are made for one."""
        original = FakeTensor.__torch_dispatch__
        lock = self._lock

        def locked(_: type, *args: Any, **kwargs: Any) -> Any:
            with lock:
                return original(*args, **kwargs)

        patches.set(FakeTensor, "__torch_dispatch__", classmethod(locked))

    def of_nobody(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, where no tensor that is made in it counts: it queries shapes alone."""

        def querying(*args: Any, **kwargs: Any) -> Any:
            before = getattr(self._inside, "depth", 0)
            self._inside.depth = 1
            try:
                return function(*args, **kwargs)
            finally:
                self._inside.depth = before

        return querying

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return super().__torch_dispatch__(func, types, args, kwargs)
        if getattr(self._inside, "depth", 0):  # what torch makes an operator's fake result of is nobody's memory
            return super().__torch_dispatch__(func, types, args, kwargs)
        if not self._is_fake(func, args, kwargs):
            return func(*args, **kwargs)
        with self._lock:
            return self._dispatch(func, types, args, kwargs)

    def _dispatch(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._is_composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = self._run(func, types, args, kwargs)
        self._report(func, args, result)
        computed = self._known.follow(func, args, kwargs, result)
        if (
            func._schema.is_mutable
            and args
            and isinstance(args[0], torch.Tensor)
            and not isinstance(args[0], FakeTensor)
        ):
            if not computed:
                self._values.note(str(func))  # a real tensor took values of the device: it keeps its own
            return args[0]
        return result

    def _is_fake(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        if self._device == "cpu" or any(isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs))):
            return True
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == self._device:
            return True
        return (
            func in _FACTORIES
            and (device is None or torch.device(device).type == "cpu")
            and _bytes(args, kwargs) >= _LARGE
        )

    # In inference mode operators come here before they are taken apart.
    def _is_composite(self, func: Any) -> bool:
        known = self._composite.get(func)
        if known is None:
            has = torch._C._dispatch_has_kernel_for_dispatch_key
            known = has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), self._device.upper())
            self._composite[func] = known
        return known

    def _run(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func is _aten._local_scalar_dense.default and getattr(args[0], "constant", None) is None:
            known = self._known.of(args[0])
            return self._values.scalar(".item()", args[0].dtype) if known is None else self._known.number(known)
        self._inside.depth = 1
        try:
            if func is _aten.index.Tensor:
                args = (args[0], self._by_number(types, args[1]))
            return super().__torch_dispatch__(func, types, args, kwargs)
        except _OF_VALUES as error:
            values = self._known.compute(func, args, kwargs)
            if values is not None:
                return tree_map(lambda leaf: self._as_fake(types, leaf), values)
            if func is _aten.nonzero.default:
                return self._nonzero(func, types, args[0])
            if func.name() == "torchvision::nms":
                rows = self._values.nonzero_rows(str(func), args[0].shape[0])
                return self._places(types, [rows], args[0].device)
            if func is _aten._unique2.default:
                return self._unique(func, types, *args)
            raise FakeTraceError(f"{place()}: {func}: {_why(error)}") from error
        except _UNSUPPORTED as error:
            raise FakeTraceError(f"{place()}: {func}: {_why(error)}") from error
        finally:
            self._inside.depth = 0

    # Masks as the places where they are true, since a fake kernel would have to know how many these are.
    def _by_number(self, types: Sequence[type], indices: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                found.append(index)
                continue
            places = self._known.compute(_aten.nonzero.default, (index,), {})
            if places is None:
                fake = self._nonzero(_aten.nonzero.default, types, index)
            else:
                fake = self._as_fake(types, places, index.device)
            columns: Any = super().__torch_dispatch__(_aten.unbind.int, types, (fake, 1), {})
            found += columns
        return found

    def _as_fake(self, types: Sequence[type], value: Any, device: Any = None) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        like = {"dtype": value.dtype, "device": device or self._present()}
        shape = (value.shape, value.stride())
        fake = super().__torch_dispatch__(_aten.empty_strided.default, types, shape, like)
        self._known.attach(fake, value)
        return fake

    def _present(self) -> torch.device:
        if self._device == "cpu":
            return torch.device("cpu")
        return torch.device(self._device, int(torch._C._accelerator_hooks_get_current_device()))

    def _nonzero(self, func: Any, types: Sequence[type], mask: Any) -> Any:
        rows = self._known.true(mask)
        if rows is None:
            rows = self._values.nonzero_rows(str(func), mask.numel(), self._known.is_compared(mask))
        return self._places(types, [rows, mask.dim()], mask.device)

    def _places(self, types: Sequence[type], shape: list[int], device: Any) -> Any:
        empty = _aten.empty.memory_format
        return super().__torch_dispatch__(empty, types, (shape,), {"dtype": torch.int64, "device": device})

    def _unique(
        self, func: Any, types: Sequence[type], of: Any, _: bool = True, inverse: bool = False, counts: bool = False
    ) -> Any:
        rows = self._values.unique_rows(str(func), of.numel())
        shapes = ([rows], list(of.shape) if inverse else [0], [rows] if counts else [0])
        likes = [{"dtype": kind, "device": of.device} for kind in (of.dtype, torch.int64, torch.int64)]
        empty = _aten.empty.memory_format
        make = super().__torch_dispatch__
        return tuple(make(empty, types, (shape,), like) for shape, like in zip(shapes, likes))

    def _report(self, func: Any, args: Sequence[Any], result: Any) -> None:
        if self._device == "cpu":
            for stage in kernels.stages(func, args, result):
                self._blocks.see_copied(stage.copies, stage.blocked, stage.result.untyped_storage())
        elif self._workspaces is not None:
            self._workspaces.follow(func, args, _is_backward())
        in_place = _sums_gradients() if func is _aten.add.Tensor else func in _INTO_ZEROS and _is_backward()
        left = args[0].untyped_storage() if in_place else None
        for leaf in tree_leaves(result):
            if not isinstance(leaf, FakeTensor) or leaf.fake_device.type != self._device:
                continue
            if leaf.layout is not torch.strided:
                raise FakeTraceError(
                    f"{place()}: {func}: a sparse tensor has as many bytes as its values say, which a fake run does "
                    "not have; trace with dense ones (sparse=False), or on the device"
                )
            self._blocks.see(leaf.untyped_storage(), left)


def _bytes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    shape = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    count = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
    for length in shape:
        count *= int(length)
    return int(count)


def _is_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


# Called by the engine itself: no Python function of a node, and no forward pass that a checkpoint repeats.
def _sums_gradients() -> bool:
    if not _is_backward():
        return False
    frame = sys._getframe(1)
    while frame is not None and any(
        part in frame.f_code.co_filename for part in ("/train/fake/", "/_compile.py", "/_dynamo/")
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def _why(error: BaseException) -> str:
    if isinstance(error, fake_tensor.DynamicOutputShapeException):
        return "the shape of its result depends on values, which a fake run does not have"
    if isinstance(error, fake_tensor.DataDependentOutputException):
        return "its result depends on values, which a fake run does not have"
    lines = str(error).strip().splitlines()
    return "it has no fake kernel" + (f" ({lines[0]})" if lines else "")
