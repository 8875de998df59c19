"""Workspaces of cuBLAS and cuBLASLt, which adds a bias to a product: torch takes one from its allocator at the first
product on a thread and stream, and keeps it.

The backward pass runs on a thread of its own, so a training has two. Sizes: parseChosenWorkspaceSize in torch's
aten/src/ATen/cuda/CublasHandlePool.cpp. Called under the mode's lock.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from typing import Any

import torch

from stalloc.train.fake.blocks import Blocks

_aten = torch.ops.aten
_PRODUCTS = frozenset(
    {
        *(_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default),
        *(_aten.mv.default, _aten.addmv.default, _aten.dot.default, _aten._addmm_activation.default),
    }
)
_OF_HOPPER = 4096 * 8 << 10  # bytes; compute capability 9 and later
_OF_LT = 1 << 20
_OF_BACKWARD = 0  # no thread has this number
_OF_OTHERS = (4096 * 2 + 16 * 8) << 10


def workspace_bytes(capability: tuple[int, int], variable: str = "") -> int:
    """`variable`: CUBLAS_WORKSPACE_CONFIG, pairs of KiB and a count (":4096:8"); what is none is torch's default."""
    pairs = re.findall(r":(\d+):(\d+)", variable)
    if pairs:
        return sum(int(size) * int(count) << 10 for size, count in pairs)
    return _OF_HOPPER if capability >= (9, 0) else _OF_OTHERS


def lt_workspace_bytes(variable: str = "") -> int:
    """`variable`: CUBLASLT_WORKSPACE_SIZE, in KiB; what is none is torch's default."""
    return int(variable) << 10 if variable.isdecimal() else _OF_LT


class Workspaces:
    """Which threads and streams have theirs."""

    def __init__(self, blocks: Blocks, capability: tuple[int, int]) -> None:
        self._blocks = blocks
        self._of_lt = lt_workspace_bytes(os.environ.get("CUBLASLT_WORKSPACE_SIZE", ""))
        self._bytes = workspace_bytes(capability, os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
        self._taken: set[tuple[object, ...]] = set()

    def follow(self, func: Any, args: Sequence[Any], backward: bool) -> None:
        """The operator runs on this thread; `backward`: in a backward pass, which has a thread of its own in a run."""
        if func not in _PRODUCTS:
            return
        user = _OF_BACKWARD if backward else threading.get_ident(), self._blocks.stream()
        self._take(user, self._bytes)
        if func is _aten.addmm.default and args[0].dim() == 1:  # with a bias: its handle is cuBLAS's
            self._take((*user, "lt"), self._of_lt)

    def _take(self, user: tuple[object, ...], size: int) -> None:
        if user not in self._taken:
            self._taken.add(user)
            self._blocks.keep(size)
