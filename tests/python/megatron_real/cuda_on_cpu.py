"""Lets a program that insists on CUDA run on the CPU: `cuda` means `cpu`, streams and events are nothing, NCCL is gloo.

For Megatron, which asks for device "cuda" everywhere. Import it first. Covers what a run of Megatron calls, no more.
"""

from __future__ import annotations

import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling dozens of small functions for the CPU takes minutes

import contextlib  # isort: skip
import types
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard import _fully_shard
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]


def _is_cuda(value: Any) -> bool:
    return (isinstance(value, str) and value.startswith("cuda")) or (
        isinstance(value, torch.device) and value.type == "cuda"
    )


class _CudaIsCpu(TorchFunctionMode):
    """Device arguments, positional or named."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function == _IS_CUDA:
            return True
        if function is torch.Tensor.type and len(args) == 1:
            return function(*args).replace("torch.", "torch.cuda.")
        if kwargs.get("device") is not None and (_is_cuda(kwargs["device"]) or kwargs["device"] == 0):
            kwargs["device"] = CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*[CPU if _is_cuda(value) else value for value in args], **kwargs)


class Nothing:
    """A stream or an event."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = CPU

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0

    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...
    def record_event(self, _: Any = None) -> Nothing:
        return self

    def record(self, _: Any = None) -> None: ...
    def wait(self, _: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def is_capturing(self) -> bool:
        return False


class _Generators:
    def __getitem__(self, _: Any) -> torch.Generator:
        return torch.default_generator


def _constant(value: Any) -> Any:
    return lambda *_, **__: value


_REPLACED: dict[str, Any] = {
    "is_available": _constant(True),
    "is_initialized": _constant(False),
    "device_count": _constant(1),
    "current_device": _constant(CPU),
    "set_device": _constant(None),
    "synchronize": _constant(None),
    "empty_cache": _constant(None),
    "get_device_capability": _constant((9, 0)),
    "get_device_name": _constant("cpu"),
    "get_device_properties": _constant(types.SimpleNamespace(major=9, minor=0, total_memory=1 << 34, name="cpu")),
    "memory_allocated": _constant(0),
    "max_memory_allocated": _constant(0),
    "memory_reserved": _constant(0),
    "max_memory_reserved": _constant(0),
    "memory_stats": _constant({}),
    "reset_peak_memory_stats": _constant(None),
    "manual_seed": torch.manual_seed,
    "get_rng_state": lambda *_, **__: torch.get_rng_state(),
    "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
    "current_stream": lambda *_: Nothing(),
    "default_stream": lambda *_: Nothing(),
    "stream": lambda *_: Nothing(),
    "Stream": Nothing,
    "Event": Nothing,
    "is_current_stream_capturing": _constant(False),
    "default_generators": _Generators(),
    "_lazy_call": lambda call: call(),
}
_ACCELERATOR: dict[str, Any] = {  # torch's newer name of what torch.cuda has
    "is_available": _constant(True),
    "device_count": _constant(1),
    "current_device_index": _constant(0),
    "set_device_index": _constant(None),
    "current_stream": lambda *_: Nothing(),
    "synchronize": _constant(None),
}


def _gloo(init_process_group: Any) -> Any:
    def init(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("backend") == "nccl":
            kwargs["backend"] = "gloo"
        kwargs.pop("device_id", None)
        return init_process_group(*args, **kwargs)

    return init


def _install() -> contextlib.ExitStack:
    for name, value in _REPLACED.items():
        setattr(torch.cuda, name, value)
    for name, value in _ACCELERATOR.items():
        setattr(torch.accelerator, name, value)
    for name in ("get_rng_state", "set_rng_state"):
        setattr(torch.cuda.random, name, _REPLACED[name])
    for kind in ("Float", "Int", "Long", "Byte", "BFloat16", "Half"):
        setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    torch.Tensor.record_stream = _constant(None)  # type: ignore[method-assign]
    _fully_shard._get_device_from_mesh = _constant(CPU)
    torch.distributed.init_process_group = _gloo(torch.distributed.init_process_group)
    stack = contextlib.ExitStack()
    stack.enter_context(_CudaIsCpu())
    return stack


_STACK = _install()  # open until the process ends
