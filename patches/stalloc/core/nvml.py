"""NVIDIA's management library, queried directly: what a GPU has, who takes it. It makes no CUDA context."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Optional

_LIBRARY = "libnvidia-ml.so.1"
_MEMORY_V2 = 2 << 24
_MOST_PROCESSES = 256


class _Memory(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@dataclasses.dataclass(frozen=True)
class CardMemory:
    """The memory of one GPU, in bytes.

    Attributes:
        reserved: the driver's own, which no process can have.
        used: taken by processes.
        processes: what each takes, by process ID; None where the library does not say. In a container the IDs may be
            the host's.
    """

    total: int
    reserved: int
    used: int
    processes: Optional[Mapping[int, int]]

    def others(self, pid: int) -> Optional[int]:
        """What processes besides that one take; None where that cannot be known."""
        if self.processes is None or pid not in self.processes:
            return None
        return sum(used for other, used in self.processes.items() if other != pid)


def load() -> Any:
    """The library, initialised. OSError where there is none or it does not work."""
    library = ctypes.CDLL(_LIBRARY)
    code = library.nvmlInit_v2()
    if code != 0:
        raise OSError(f"{_LIBRARY}: nvmlInit gave {code}")
    return library


def memory(pci_bus_id: str, loaded: Callable[[], Any] = load) -> Optional[CardMemory]:
    """The state of the GPU at that address ("0000:1b:00.0"); None if the library cannot be queried."""
    try:
        library = loaded()
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(handle)) != 0:
            return None
        found = _Memory(version=ctypes.sizeof(_Memory) | _MEMORY_V2)
        if library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(found)) != 0:
            return None
        return CardMemory(found.total, found.reserved, found.used, _processes(library, handle))
    except (OSError, AttributeError):  # an older library lacks functions
        return None


def _processes(library: Any, handle: ctypes.c_void_p) -> Optional[dict[int, int]]:
    rows = (_Process * _MOST_PROCESSES)()
    count = ctypes.c_uint(_MOST_PROCESSES)
    if library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows) != 0:
        return None
    known = {row.pid: row.used for row in rows[: count.value]}
    not_said = ctypes.c_ulonglong(-1).value
    return None if not_said in known.values() else known
