"""A GPU as if it were smaller: what it has beyond is taken from the driver, so that it binds every allocator alike."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "patches"))

from stalloc.core.sizes import parse as parse_bytes

__all__ = ["occupy", "parse_bytes"]


def occupy(card: int, device: torch.device) -> None:
    """Leaves `card` bytes of the device, context included, to this process; the rest comes back when it ends. A CPU
    stays as it is."""
    if device.type != "cuda":
        return
    torch.cuda.synchronize(device)  # there is a context now
    beyond = torch.cuda.get_device_properties(device).total_memory - card
    if beyond <= 0:
        return
    address = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(beyond))
    if code != 0:
        sys.exit(f"occupied.py: cannot take {beyond} bytes off the card: CUDA error {code}")
