"""A GPU as if it were smaller: what it has beyond is taken from the driver, so that it binds every allocator alike."""

from __future__ import annotations

import argparse
import ctypes
import re
import sys

import torch

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text: str) -> int:
    """Binary units: 80G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size as 80G: {text!r}")
    return round(float(match[1]) * _UNITS[match[2]])


def occupy(card: int, device: torch.device) -> None:
    """Leaves `card` bytes of the device, context included, to this process; the rest comes back when it ends."""
    torch.cuda.synchronize(device)  # there is a context now
    beyond = torch.cuda.get_device_properties(device).total_memory - card
    if beyond <= 0:
        return
    address = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(beyond))
    if code != 0:
        sys.exit(f"card.py: cannot take {beyond} bytes off the card: CUDA error {code}")
