"""The size of `stalloc run --fit SIZE` as the limit of a process on its GPU, as a smaller card would have it.

stalloc's own memory keeps it anyway (STALLOC_HELD_LIMIT); this is PyTorch's allocator, which serves until a plan does:
it gives free memory back before it passes the limit, and is out of memory above it.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from stalloc.core import fit_files
from stalloc.core.fit_files import Choice


class HeldLimit:
    """Is set once, when the device is known on which the program trains. `limit`: bytes."""

    def __init__(self, limit: int, torch: Any) -> None:
        self._limit = limit
        self._torch = torch

    @classmethod
    def of(cls, choice: Choice, torch: Any) -> Optional[HeldLimit]:
        """None: no size was given, or PyTorch's allocator would be out of memory, which the choice has said."""
        limit = fit_files.held_limit(os.environ)
        return cls(limit, torch) if choice.held_unplanned <= limit and limit > 0 else None

    def set(self, args: tuple[Any, ...]) -> bool:
        """Whether that is done. `args`: what a module is called with."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return False
        device = next((each.device for each in args if getattr(each, "is_cuda", False)), cuda.current_device())
        share = self._limit / cuda.get_device_properties(device).total_memory
        if share < getattr(cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device):
            cuda.set_per_process_memory_fraction(share, device)
        return True
