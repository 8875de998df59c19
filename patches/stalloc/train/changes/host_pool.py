"""Host memory for what is offloaded: taken once, and used again in each iteration. Bytes."""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

import torch

_UNIT = 512  # pieces begin and end at such bytes
_LEAST, _MOST = 1 << 20, 512 << 20  # of a chunk, but for one piece that is larger


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a chunk; `bytes`, a tensor of the requested bytes."""

    chunk: Any
    begin: int
    end: int
    bytes: Any


class HostPool:
    """Chunks double the pool, up to `_MOST`, so that a few of them hold an iteration. Not thread-safe."""

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._chunks: list[Any] = []
        self._free: list[list[tuple[int, int]]] = []  # by chunk: begin and end, ascending
        self.used = 0  # bytes that are handed out

    @property
    def size(self) -> int:
        return sum(chunk.numel() for chunk in self._chunks)

    def take(self, count: int) -> Piece:
        """The smallest free range that holds so many bytes; a new chunk where there is none. torch's errors where the
        host has no memory."""
        size = -(-max(1, count) // _UNIT) * _UNIT
        fitting = [
            (end - begin, index, begin)
            for index, ranges in enumerate(self._free)
            for begin, end in ranges
            if end - begin >= size
        ]
        if not fitting:
            self._grow(size)
            fitting = [(0, len(self._chunks) - 1, 0)]
        _, index, begin = min(fitting)
        ranges = self._free[index]
        place = bisect.bisect_left(ranges, (begin, 0))
        _, end = ranges.pop(place)
        if end > begin + size:
            ranges.insert(place, (begin + size, end))
        self.used += size
        chunk = self._chunks[index]
        return Piece(chunk, begin, begin + size, chunk[begin : begin + count])

    def give(self, piece: Piece) -> None:
        """A piece of a pool that was emptied meanwhile goes with its chunk."""
        index = next((i for i, chunk in enumerate(self._chunks) if chunk is piece.chunk), None)
        if index is None:
            return
        self.used -= piece.end - piece.begin
        ranges, begin, end = self._free[index], piece.begin, piece.end
        place = bisect.bisect_left(ranges, (begin, 0))
        if place < len(ranges) and ranges[place][0] == end:
            end = ranges.pop(place)[1]
        if place > 0 and ranges[place - 1][1] == begin:
            place -= 1
            begin = ranges.pop(place)[0]
        ranges.insert(place, (begin, end))

    def empty(self) -> None:
        """Frees all chunks; those with pieces that are in use go with the last of them."""
        self._chunks, self._free, self.used = [], [], 0

    def _grow(self, size: int) -> None:
        wanted = max(size, min(_MOST, self.size), _LEAST)
        count = 1 << (wanted - 1).bit_length()  # what torch takes for pinned memory anyway
        chunk = torch.empty(count, dtype=torch.uint8, pin_memory=self._pinned)
        self._chunks.append(chunk)
        self._free.append([(0, count)])
