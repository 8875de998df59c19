"""A torch.cuda that answers as for GPUs of a kind of today's: for programs that query it before they train. A process
uses one of them, that of its LOCAL_RANK.

Nothing runs, so that nobody waits: streams only say whose a block is. Figures of memory are the trace's own.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, Callable, Optional

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from stalloc.train.fake.blocks import Blocks
from stalloc.train.fake.patches import Patches

NAME = "fake GPU"
CAPABILITY = (9, 0)
_MEMORY = 80 << 30
_PROCESSORS = 132

# Of the device, by stats(): live bytes and their peak.
Figures = Callable[[], tuple[int, int]]


class Streams:
    """Which one each thread is on: the default one, until it takes another."""

    def __init__(self) -> None:
        self.default = _Stream(number=0)
        self._of_thread = threading.local()

    @property
    def present(self) -> _Stream:
        stream: _Stream = getattr(self._of_thread, "stream", self.default)
        return stream

    def set(self, stream: Any) -> None:
        if stream is not None:
            self._of_thread.stream = stream

    @contextlib.contextmanager
    def inside(self, stream: Any) -> Iterator[None]:
        before = self.present
        self.set(stream)
        try:
            yield
        finally:
            self.set(before)


class _Stream:
    device_index = 0
    device_type = 1  # CUDA, as torch._C counts them
    _numbers = itertools.count(1)

    def __init__(self, *_: Any, number: Optional[int] = None, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_stream = self.stream_id = next(self._numbers) if number is None else number

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...


class _Devices:
    """How many there are, and which is the present one."""

    def __init__(self) -> None:
        ranks = int(os.environ.get("LOCAL_RANK", "0")) + 1
        self.count = max(ranks, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    @property
    def present(self) -> int:
        return int(torch._C._accelerator_hooks_get_current_device())

    def set(self, device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        if index is not None and index >= 0:
            torch._C._accelerator_hooks_set_current_device(index)

    @contextlib.contextmanager
    def inside(self, device: Any) -> Iterator[None]:
        before = self.present
        if device is not None:
            self.set(device)
        try:
            yield
        finally:
            self.set(before)


class _Generator(torch.Generator):
    """One of a device draws on the CPU: nothing is computed from its numbers."""

    _of: torch.device

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls)
        made._of = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._of


def _configuration() -> str:
    """torch's own text, but for the lines of CUDA, which the missing library has."""
    settings = f"USE_CUDA=ON, USE_MKL={_switch(torch.backends.mkl)}"
    return f"PyTorch built with:\n  - CUDA device: {NAME}\n  - Build settings: {settings}\n"


def _switch(backend: Any) -> str:
    return "ON" if backend.is_available() else "OFF"


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...


def install(patches: Patches, figures: Figures, warn: Callable[[str], None], streams: Streams, blocks: Blocks) -> None:
    """Puts the answers in place until `patches` are undone."""
    for name, answer in (_answers(figures, streams) | _history(warn)).items():
        patches.set(torch.cuda, name, answer)
        if hasattr(torch.cuda.memory, name):
            patches.set(torch.cuda.memory, name, answer)
    patches.set(fake_tensor, "init_gpu_context", _nothing)
    patches.set(torch, "Generator", _Generator)
    patches.set(torch.__config__, "show", _configuration)
    cudnn = sys.modules["torch.backends.cudnn"].m  # its version cannot be queried
    patches.set(cudnn, "_init", lambda: False)
    patches.set(cudnn, "is_acceptable", lambda _: False)
    patches.set(torch.Tensor, "pin_memory", lambda tensor, *_, **__: tensor)
    patches.set(
        FakeTensor,
        "record_stream",
        lambda tensor, stream: blocks.record_stream(tensor.untyped_storage(), stream.cuda_stream),
    )


def _answers(figures: Figures, streams: Streams) -> dict[str, Any]:
    devices = _Devices()
    properties = types.SimpleNamespace(
        name=NAME, major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=_MEMORY, multi_processor_count=_PROCESSORS
    )
    answers: dict[str, Any] = dict.fromkeys(_SILENT, _nothing)
    answers |= {
        "Event": _Event,
        "Stream": _Stream,
        "current_device": lambda: devices.present,
        "current_stream": lambda *_, **__: streams.present,
        "default_stream": lambda *_, **__: streams.default,
        "device": _device_class(devices),
        "device_count": lambda: devices.count,
        "get_device_capability": lambda *_, **__: CAPABILITY,
        "get_device_name": lambda *_, **__: NAME,
        "get_device_properties": lambda *_, **__: properties,
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda *_, **__: [torch.zeros(16, dtype=torch.uint8)],
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "is_bf16_supported": lambda *_, **__: True,
        "is_initialized": lambda: True,
        "max_memory_allocated": lambda *_, **__: figures()[1],
        "max_memory_reserved": lambda *_, **__: figures()[1],
        "mem_get_info": lambda *_, **__: (max(0, _MEMORY - figures()[0]), _MEMORY),
        "memory_allocated": lambda *_, **__: figures()[0],
        "memory_reserved": lambda *_, **__: figures()[0],
        "memory_stats": lambda *_, **__: _statistics(*figures()),
        "set_device": devices.set,
        "set_stream": streams.set,
        "stream": streams.inside,
    }
    return answers


def _device_class(devices: _Devices) -> type:
    """A type, since torch checks whether something is one."""

    class device:  # noqa: N801 -- torch's name
        def __init__(self, device: Any) -> None:
            self.idx = device if isinstance(device, int) or device is None else torch.device(device).index
            self._inside = devices.inside(self.idx)

        def __enter__(self) -> None:
            self._inside.__enter__()

        def __exit__(self, *error: Any) -> None:
            self._inside.__exit__(*error)

    return device


def _history(warn: Callable[[str], None]) -> dict[str, Any]:
    """PyTorch's own record of its allocator, which has nothing to do in a fake run."""

    def record(enabled: Any = "all", *_: Any, **__: Any) -> None:
        if enabled is not None and enabled is not False:
            warn("PyTorch records no memory history in a fake run: stalloc export -f snapshot makes one of the trace")

    def dump(*_: Any, **__: Any) -> None:
        warn("a fake run dumps no memory snapshot: stalloc export -f snapshot makes one of the trace")

    nothing: dict[str, Any] = {"segments": [], "device_traces": [[]], "allocator_settings": {}}
    return {
        "_record_memory_history": record,
        "_dump_snapshot": dump,
        "_snapshot": lambda *_, **__: {**nothing, "external_annotations": []},
        "memory_snapshot": lambda *_, **__: [],
    }


_SILENT = (
    "_lazy_init",
    "empty_cache",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
)


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for calls that need a device and change none of its blocks."""


_COUNTED = (
    *("active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes"),
    *("requested_bytes", "reserved_bytes", "segment"),
)
_LARGEST = ("oversize_allocations", "oversize_segments")
_NUMBERS = ("num_alloc_retries", "num_device_alloc", "num_device_free", "num_ooms", "num_sync_all_streams")


# What has no figure here is 0.
def _statistics(live: int, peak: int) -> dict[str, int]:
    kinds = ("current", "peak", "allocated", "freed")
    found: dict[str, int] = collections.defaultdict(int)
    for name in _COUNTED:
        found |= {f"{name}.{pool}.{kind}": 0 for pool in ("all", "large_pool", "small_pool") for kind in kinds}
    found |= {f"{name}.{kind}": 0 for name in _LARGEST for kind in kinds}
    found |= dict.fromkeys((*_NUMBERS, "max_split_size"), 0)
    for name in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
        found |= {f"{name}.all.current": live, f"{name}.all.peak": peak}
    return found
