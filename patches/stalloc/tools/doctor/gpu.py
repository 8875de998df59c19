"""The CUDA driver, queried directly: versions, devices, virtual memory management. It makes no context."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any

from stalloc.core.sizes import size
from stalloc.tools.doctor.machine import Finding, Machine, failure, ok, warning

_VIRTUAL_MEMORY, _POSIX_HANDLES = 102, 103  # CU_DEVICE_ATTRIBUTE_...
_MOST_USERS = 4
_SHARED_BYTES = 64 << 20  # of contexts that idle tools leave
_NO_VMM = (
    "Alloc and exact traces need virtual memory management: a GPU with it, not a vGPU that has it switched off; fast "
    "traces and reports work"
)


def driver(machine: Machine) -> Iterator[Finding]:
    try:
        cuda = machine.cuda()
    except OSError:
        yield _without_driver(machine)
        return
    code = cuda.cuInit(0)
    if code != 0:
        yield failure(
            "CUDA driver",
            f"cuInit gave {code}",
            "see that nvidia-smi works here; 100: no device is visible (CUDA_VISIBLE_DEVICES), 803: the driver's "
            "library and the kernel's module are of different versions",
        )
        return
    version = _integer(cuda.cuDriverGetVersion)
    yield ok("CUDA driver", f"{_kernel_module(machine)}, for CUDA {version // 1000}.{version % 1000 // 10}")
    yield from _runtime(machine, version)
    for index in range(_integer(cuda.cuDeviceGetCount)):
        yield from _device(cuda, index)
        yield from _memory(machine, cuda, index)


def cards(cuda: Any) -> list[tuple[str, int]]:
    """Name and bytes of each GPU that is visible; none where the driver does not start."""
    if cuda.cuInit(0) != 0:
        return []
    return [_named(cuda, _device_at(cuda, index)) for index in range(_integer(cuda.cuDeviceGetCount))]


def _without_driver(machine: Machine) -> Finding:
    fact = "there is none (libcuda.so.1)"
    wanted = machine.environ.get("STALLOC_DEVICE", "").lower() == "cuda"
    if wanted or machine.read("/proc/driver/nvidia/version") is not None:
        return failure("CUDA driver", fact, "install the driver's libraries; in a container, start it with its GPUs")
    return warning("CUDA driver", fact, "no GPU here: CPU training, the planner, reports and `run --fake` work")


def _runtime(machine: Machine, driver_version: int) -> Iterator[Finding]:
    """Whether the driver is new enough for torch's CUDA; minor versions of one major are compatible."""
    torch = machine.torch
    cuda = None if torch is None else torch.version.cuda
    if torch is None or cuda is None:
        return
    major = int(cuda.partition(".")[0])
    if driver_version // 1000 < major:
        yield failure(
            "CUDA runtime",
            f"torch's is {cuda}, newer than the driver's",
            f"install a torch for CUDA {driver_version // 1000}, or a newer driver",
        )
    elif not torch.cuda.is_available():
        yield failure(
            "CUDA runtime",
            f"torch's is {cuda}, and torch sees no GPU",
            "python -c 'import torch; torch.cuda.init()' says why",
        )
    else:
        yield ok("CUDA runtime", f"torch's is {cuda}")


def _device(cuda: Any, index: int) -> Iterator[Finding]:
    device = _device_at(cuda, index)
    name, total = _named(cuda, device)
    subject = f"GPU {index}"
    facts = f"{name}, {total / 2**30:.1f} GiB"
    if not _attribute(cuda, _VIRTUAL_MEMORY, device):
        yield failure(subject, f"{facts}, without virtual memory management", _NO_VMM)
    elif not _attribute(cuda, _POSIX_HANDLES, device):
        yield warning(
            subject,
            f"{facts}, virtual memory management, no file descriptors of memory",
            "tensors in the arena cannot be shared with other processes",
        )
    else:
        yield ok(subject, f"{facts}, virtual memory management, memory can be shared")


def _device_at(cuda: Any, index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    return device


def _named(cuda: Any, device: ctypes.c_int) -> tuple[str, int]:
    """And its bytes."""
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    total = ctypes.c_size_t()
    getattr(cuda, "cuDeviceTotalMem_v2", cuda.cuDeviceTotalMem)(ctypes.byref(total), device)
    return name.value.decode("utf-8", "replace"), total.value


def _memory(machine: Machine, cuda: Any, index: int) -> Iterator[Finding]:
    """Who has the GPU's memory now; nothing if NVIDIA's management library cannot be queried."""
    device = _device_at(cuda, index)
    address = ctypes.create_string_buffer(32)
    if cuda.cuDeviceGetPCIBusId(address, len(address), device) != 0:
        return
    card = machine.card(address.value.decode())
    if card is None:
        return
    subject, free = f"GPU {index} memory", card.total - card.reserved - card.used
    fact = f"{size(free)} free; the driver keeps {size(card.reserved)}, processes have {size(card.used)}"
    users = sorted((card.processes or {}).items(), key=lambda entry: -entry[1])
    if users:
        fact += f" ({', '.join(f'process {pid}: {size(used)}' for pid, used in users[:_MOST_USERS])})"
    if card.used > _SHARED_BYTES:
        yield warning(subject, fact, "other programs have memory of it: STALLOC_KEEP_FREE says how much to leave them")
    else:
        yield ok(subject, fact)


def _attribute(cuda: Any, attribute: int, device: ctypes.c_int) -> bool:
    value = ctypes.c_int()
    return cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0 and value.value != 0


def _integer(function: Any) -> int:
    value = ctypes.c_int()
    function(ctypes.byref(value))
    return value.value


def _kernel_module(machine: Machine) -> str:
    match = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", machine.read("/proc/driver/nvidia/version") or "")
    return match[1] if match else "version not known"
