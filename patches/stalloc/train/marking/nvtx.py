"""Marks as NVTX ranges (STALLOC_NVTX=1), so that Nsight Systems shows iterations, micro-batches, layers and fences.

Ranges of a thread are nested. A mark may have no end: an iteration ends with the next one, a micro-batch or optimizer
with whatever comes on its level, and what is open inside ends with it.
"""

from __future__ import annotations

import threading
from typing import Any, Optional

from stalloc.train.marking.marks import BEGIN, FENCE, INIT, ITERATION, LAYER, MICROBATCH, OPTIMIZER, PASSES, MarkSink

# What can hold what: a mark that begins ends those on its own level, except layers and fences, which nest.
_LEVEL = {INIT: 0, ITERATION: 0, MICROBATCH: 1, OPTIMIZER: 1}
_NAMES = {INIT: "init", OPTIMIZER: "optimizer"}
_PASS_NAMES = {number: name for name, number in PASSES.items()}


def together_with(sink: MarkSink, torch: Any) -> MarkSink:
    """A sink that does what `sink` does, and ranges."""
    ranges = Ranges(torch.cuda.nvtx)

    def both(kind: int, edge: int, which: int, *rest: Any) -> object:
        chunk, index, name, _automatic = rest
        ranges.mark(kind, edge, _text(kind, which, chunk, index, name))
        return sink(kind, edge, which, *rest)

    return both


def _text(kind: int, which: int, chunk: int, index: int, name: Optional[bytes]) -> str:
    if kind == ITERATION:
        return f"iteration {index}"
    if kind == MICROBATCH:
        return f"{_PASS_NAMES[which]} {index}" + (f" chunk {chunk}" if chunk else "")
    return _NAMES.get(kind) or (name or b"").decode("utf-8", "replace")


class Ranges:
    """The open ranges of each thread. `nvtx` has range_push and range_pop."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx
        self._threads = threading.local()

    def mark(self, kind: int, edge: int, text: str) -> None:
        if not hasattr(self._threads, "open"):
            self._threads.open = []
        ranges: list[tuple[int, str]] = self._threads.open
        if edge == BEGIN:
            if kind not in (LAYER, FENCE):
                self._close_level(ranges, _LEVEL[kind])
            ranges.append((kind, text))
            self._nvtx.range_push(text)
        elif (kind, text) in ranges:
            while self._pop(ranges) != (kind, text):
                pass

    def _close_level(self, ranges: list[tuple[int, str]], level: int) -> None:
        depth = next((i for i, (kind, _) in enumerate(ranges) if _LEVEL.get(kind, -1) >= level), None)
        while depth is not None and len(ranges) > depth:
            self._pop(ranges)

    def _pop(self, ranges: list[tuple[int, str]]) -> tuple[int, str]:
        self._nvtx.range_pop()
        return ranges.pop()
