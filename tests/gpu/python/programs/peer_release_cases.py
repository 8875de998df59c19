"""Cases of test_two_devices_cuda.py: peer_release_cases.py CASE

A stream of cuda:1 reads a block of cuda:0 late, and nothing that cuda:0 is given waits for it. The block is freed, or
put to sleep, and its memory goes elsewhere: not before it was read.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import adapter
import torch

MIB = 1 << 20
SIZE = 64 * MIB
LATE = 200_000_000  # cycles: some 100 ms
ITERATIONS = 6

_driver = ctypes.CDLL("libcuda.so.1")
_driver.cuMemcpyDtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
_TAGS = [ctypes.c_void_p, ctypes.c_size_t]
adapter.library.stalloc_sleep.argtypes = [ctypes.c_int, *_TAGS, *_TAGS]
adapter.library.stalloc_wake.argtypes = [ctypes.c_int, *_TAGS]


class Reader:
    """Reads blocks of cuda:0 on a stream of cuda:1, late."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream(device=1)
        self.seen = torch.zeros(SIZE, dtype=torch.uint8, device="cuda:1")
        for source, target in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):  # torch opens the devices to each other
            torch.zeros(1024, device=source).to(target)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    def read(self, block: torch.Tensor) -> None:
        self.stream.wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(LATE)
            error = _driver.cuMemcpyDtoDAsync_v2(
                self.seen.data_ptr(), block.data_ptr(), SIZE, ctypes.c_void_p(self.stream.cuda_stream)
            )
        assert error == 0, f"cuMemcpyDtoDAsync gave {error}"

    def check(self, value: int) -> None:
        for device in (0, 1):
            torch.cuda.synchronize(device)
        host = self.seen.cpu()
        found = (int(host.min()), int(host.max()))
        assert found == (value, value), f"expected bytes of {value}, found {found}"


def block(value: int) -> torch.Tensor:
    return torch.full((SIZE,), value, dtype=torch.uint8, device="cuda:0")


def iterate(end: Any) -> None:
    """Iterations that request the same: what `end(block, reader)` does to a block that is still to be read."""
    reader = Reader()
    for value in range(1, ITERATIONS):
        adapter.begin_iteration(value - 1)
        first = block(value)
        reader.read(first)
        end(first, reader)
        del first
        after(value)
        torch.empty(MIB, dtype=torch.uint8, device="cuda:1")  # nothing is planned for a device that requests nothing
        reader.check(value)
        adapter.end_iteration(value - 1)


def after(value: int) -> None:
    """The memory gets other owners."""
    if sys.argv[1] in ("emptied", "traced"):
        torch.cuda.empty_cache()
    elif sys.argv[1] == "moved":
        for _ in range(4):
            adapter.begin_fence()
            adapter.end_fence()
    others = [torch.full((MIB * 8,), 200 + value, dtype=torch.uint8, device="cuda:0") for _ in range(16)]
    del others


def record(first: torch.Tensor, reader: Reader) -> None:
    first.record_stream(reader.stream)


def asleep(first: torch.Tensor, reader: Reader) -> None:
    assert adapter.library.stalloc_sleep(0, None, 0, None, 0) == 0, adapter.library.stalloc_last_error()
    assert adapter.library.stalloc_wake(0, None, 0) == 0, adapter.library.stalloc_last_error()


def main() -> None:
    adapter.install("cuda")
    case = sys.argv[1]
    iterate(asleep if case == "asleep" else record)
    result: dict[str, Any] = {}
    if case == "allocated":
        before = adapter.stats()["devices"][0]
        stream = torch.cuda.Stream(device=1)
        pointer = torch.cuda.caching_allocator_alloc(SIZE, device=0, stream=stream)
        now = adapter.stats()["devices"][0]
        torch.cuda.caching_allocator_delete(pointer)
        result = {key: now[key] - before[key] for key in ("planned_hits", "dynamic_hits", "upstream")}
    adapter.show({"stats": adapter.stats(), "of_other": result})


if __name__ == "__main__":
    main()
