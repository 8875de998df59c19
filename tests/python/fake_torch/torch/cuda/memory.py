"""The pluggable allocator's Python side: what was installed is kept in `installed`."""

from __future__ import annotations

installed: CUDAPluggableAllocator | None = None


class _Handle:
    def __init__(self) -> None:
        self.record_stream_address = 0

    def set_record_stream_fn(self, address: int) -> None:
        self.record_stream_address = address


class CUDAPluggableAllocator:
    def __init__(self, path: str, malloc: str, free: str) -> None:
        self.arguments = (path, malloc, free)
        self._allocator = _Handle()

    def allocator(self) -> _Handle:
        return self._allocator


def change_current_allocator(allocator: CUDAPluggableAllocator) -> None:
    global installed
    installed = allocator
