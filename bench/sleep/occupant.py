"""Another process on the device, which takes memory, writes it, and gives it back. Obeys lines (parts.py)."""

from __future__ import annotations

import sys
from typing import Any

import torch
from parts import obey

device = sys.argv[1]
held: list[torch.Tensor] = []


def take(size: int) -> dict[str, Any]:
    """In pieces of up to 1 GB, so that holes of another process's do."""
    while size > 0:
        piece = min(size, 10**9)
        held.append(torch.full((piece,), 7, dtype=torch.uint8, device=device))
        size -= piece
    return {"sum": int(sum(int(tensor[-1]) for tensor in held))}


def give() -> dict[str, Any]:
    held.clear()
    if device != "cpu":
        torch.cuda.empty_cache()
    return {}


if device != "cpu":
    torch.zeros(1, device=device)
obey({"take": take, "give": give})
