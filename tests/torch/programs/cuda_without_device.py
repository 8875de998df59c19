"""Calls torch's CUDA memory functions where there is no device, with and without the adapter; prints what each does.

cuda_without_device.py {native,stalloc}
"""

from __future__ import annotations

import sys
from typing import Any, Callable

import adapter
import torch

CALLS: dict[str, Callable[[], Any]] = {
    "is_available": torch.cuda.is_available,
    "device_count": torch.cuda.device_count,
    "is_initialized": torch.cuda.is_initialized,
    "memory_allocated": torch.cuda.memory_allocated,
    "max_memory_allocated": torch.cuda.max_memory_allocated,
    "memory_reserved": torch.cuda.memory_reserved,
    "memory_stats": torch.cuda.memory_stats,
    "empty_cache": torch.cuda.empty_cache,
    "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
    "backend": torch.cuda.get_allocator_backend,
    "mem_get_info": torch.cuda.mem_get_info,
    "set_fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.5, 0),
    "accelerator_empty_cache": torch.accelerator.memory.empty_cache,
    "tensor": lambda: torch.ones(3, device="cuda"),
    "stats_binding": lambda: torch._C._cuda_memoryStats(0),
    "segments": torch.cuda.memory_snapshot,
}


def outcome(call: Callable[[], Any]) -> str:
    """What the call returns, or the first line of its error."""
    try:
        return f"returns {call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> None:
    if sys.argv[1] == "stalloc":
        adapter.install("cuda")
    outcomes = {name: outcome(call) for name, call in CALLS.items()}
    settings = torch._C._cuda_memorySnapshot(None)["allocator_settings"]
    adapter.show({"outcomes": outcomes, "settings": settings, "graphs": adapter.graphs()})


if __name__ == "__main__":
    main()
