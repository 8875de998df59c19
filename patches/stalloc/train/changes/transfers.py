"""Bytes of saved tensors on their way to the host and back, on copy streams of their device.

Streams wait for each other; the host waits for none. A source is let go once the stream that saved it waits for the
copy, so that its memory is free there, at the same point of the program each time. What comes back lies in memory of
that stream. On the host's own tensors copies are made at once.
"""

from __future__ import annotations

import atexit
import collections
import sys
import threading
from typing import Any, Optional

import torch

from stalloc.train.changes.host_pool import HostPool, Piece


class ChangedError(RuntimeError):
    """A source was changed before its copy was there for certain."""


class Lane:
    """Of a device: its pool of host memory, and how bytes are copied. This one is the host's own, and copies at once.

    `lock` is held while a transfer of the lane changes.
    """

    overlaps = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.pool = HostPool(pinned=self.overlaps)
        self.sent = self.fetched = 0  # bytes that were copied so far
        self._given: collections.deque[tuple[Piece, Any]] = collections.deque()  # a collector may run at any point

    def take(self, count: int) -> Piece:
        """Host memory that no copy uses any more when the next one to the host runs."""
        while self._given:
            piece, arrived = self._given.popleft()
            self._reuse_after(arrived)
            self.pool.give(piece)
        return self.pool.take(count)

    def give(self, piece: Piece, arrived: Any) -> None:
        """`arrived`: of the last copy from it, if there was one."""
        self._given.append((piece, arrived))

    def stream(self) -> Any:
        """The current one."""
        return None

    def to_host(self, source: Any, host: Any) -> Any:
        """Copies bytes after what the current stream has to do; returns the event of their arrival."""
        host.copy_(source)

    def to_device(self, host: Any, copied: Any, stream: Any) -> tuple[Any, Any]:
        """New memory of the stream, into which they are copied, and when they are there."""
        return torch.empty(host.numel(), dtype=torch.uint8, device=self.device).copy_(host), None

    def wait(self, stream: Any, event: Any) -> None:
        """Has the stream wait."""

    def used_by(self, tensor: Any, stream: Any) -> None:
        """Its memory is not another stream's before the stream has done what it has to do by the time it is freed."""

    def _reuse_after(self, event: Any) -> None:
        """Later copies to the host wait for it."""


class CudaLane(Lane):
    """A GPU's: pinned memory, and a stream for each direction, since both can be under way at once.

    Streams and events are no part of a compiled graph, also where torch.compile runs inside an offloaded module.
    """

    overlaps = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._out, self._back = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def stream(self) -> Any:
        return torch.cuda.current_stream(self.device)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def to_host(self, source: Any, host: Any) -> Any:
        self._out.wait_stream(self.stream())
        with torch.cuda.stream(self._out):
            host.copy_(source, non_blocking=True)
            return self._out.record_event()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def to_device(self, host: Any, copied: Any, stream: Any) -> tuple[Any, Any]:
        with torch.cuda.stream(stream):
            buffer = torch.empty(host.numel(), dtype=torch.uint8, device=self.device)
        self._back.wait_stream(stream)  # its memory was that of something else
        self._back.wait_event(copied)
        with torch.cuda.stream(self._back):
            buffer.copy_(host, non_blocking=True)
            return buffer, self._back.record_event()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def wait(self, stream: Any, event: Any) -> None:
        if event is not None:
            stream.wait_event(event)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def used_by(self, tensor: Any, stream: Any) -> None:
        tensor.record_stream(stream)  # where it is this stream's own memory, that changes nothing

    def _reuse_after(self, event: Any) -> None:
        self.wait(self._out, event)


_lanes: dict[torch.device, Lane] = {}
_making = threading.Lock()


def lane_of(device: torch.device) -> Lane:
    """There is one for each device. Thread-safe."""
    with _making:
        if device not in _lanes:
            _lanes[device] = (CudaLane if device.type == "cuda" else Lane)(device)
            if _lanes[device].overlaps:
                atexit.register(close)  # while the driver is still there
        return _lanes[device]


def close() -> None:
    """Frees the pools' memory. What is away keeps its own until it has come back. Thread-safe."""
    for lane in list(_lanes.values()):
        with lane.lock:
            lane.pool.empty()
    release = getattr(torch._C, "_host_emptyCache", None)  # torch keeps pinned memory for the next request
    if release is not None and any(lane.overlaps for lane in _lanes.values()):
        release()


class Transfer:
    """Bytes of a tensor: on the device until `release`, from then on the host, and back by `fetch` or when they are
    needed, until the last of its takers has had them. Thread-safe."""

    def __init__(self, lane: Lane, source: Any, begin: int, count: int) -> None:
        """Starts the copy. `source`: a plain tensor; of its storage, `count` bytes from `begin` on."""
        self._lane = lane
        self._stream = lane.stream()
        self._source: Optional[torch.Tensor] = source.detach()
        self._version = source._version
        self._changed = False
        self._buffer: Optional[torch.Tensor] = None
        self._arrived: Any = None
        self._awaited = True
        self._begin = begin
        self._takers: set[int] = set()
        self._waiting: set[int] = set()  # takers that have not had the buffer
        flat = as_bytes(source, begin, count)
        with lane.lock:
            self._piece = lane.take(count)
            self._copied = lane.to_host(flat, self._piece.bytes)
            lane.sent += count

    @property
    def is_on_device(self) -> bool:
        return self._source is not None or self._buffer is not None

    def add(self, taker: object) -> None:
        with self._lane.lock:
            self._takers.add(id(taker))
            self._waiting.add(id(taker))

    def remove(self, taker: object) -> None:
        """It will make no more requests."""
        with self._lane.lock:
            self._takers.discard(id(taker))
            self._has_had(taker)

    def release(self) -> None:
        """Lets the source go; the stream that saved it waits for the copy first."""
        with self._lane.lock:
            source, self._source = self._source, None
            if source is None:
                return
            self._changed = self._lane.overlaps and source._version != self._version
            self._lane.wait(self._stream, self._copied)
            self._lane.used_by(source, self._stream)

    def fetch(self) -> None:
        """Starts the copy back, unless the bytes are on the device."""
        with self._lane.lock:
            if self.is_on_device or not self._takers:
                return
            self._buffer, self._arrived = self._lane.to_device(self._piece.bytes, self._copied, self._stream)
            self._lane.fetched += self._piece.bytes.numel()
            self._awaited = False
            self._waiting = set(self._takers)

    def take(self, taker: object) -> tuple[torch.Tensor, int]:
        """A tensor on the storage that has the bytes, for the current stream, and where they begin in it.
        ChangedError."""
        with self._lane.lock:
            source = self._source
            if source is not None and source._version == self._version:
                return source, self._begin
            if self._changed or (source is not None and self._lane.overlaps):
                raise ChangedError
            if source is not None:
                self.release()
            self.fetch()
            buffer, stream = self._buffer, self._lane.stream()
            assert buffer is not None
            self._lane.wait(stream, self._arrived)
            self._lane.used_by(buffer, stream)
            self._awaited = self._awaited or stream == self._stream
            self._has_had(taker)
            return buffer, 0

    def _has_had(self, taker: object) -> None:
        self._waiting.discard(id(taker))
        if not self._waiting:
            self._let_buffer_go()

    def _let_buffer_go(self) -> None:
        if self._buffer is not None and not self._awaited:
            self._lane.wait(self._stream, self._arrived)
            self._awaited = True
        self._buffer = None

    def __del__(self) -> None:
        if sys.is_finalizing() or not hasattr(self, "_copied"):
            return
        self.release()
        self._let_buffer_go()
        self._lane.give(self._piece, self._arrived)


def as_bytes(tensor: Any, begin: int, count: int) -> Any:
    """Of its storage, `count` bytes from `begin` on."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), begin, (count,), (1,))
