"""Cases of test_watch_cuda.py: watch_cases.py CASE

Faults are planted with the driver's own memset on a stream, as a kernel with a wrong index would make them.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import adapter
import torch

MIB = 1 << 20
BLOCK = 64 * MIB
ODD = 64 * MIB + 100
DRIVER = ctypes.CDLL("libcuda.so.1")


def write(address: int, value: int, count: int = 1) -> None:
    """On the current stream, behind its work."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status = DRIVER.cuMemsetD8Async(ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(count), stream)
    assert status == 0, status


def new(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def watched() -> dict[str, Any]:
    torch.cuda.synchronize()
    stats = next(device for device in adapter.stats()["devices"] if device["device"] == 0)
    result = dict(stats["watch"])
    result["planned_hits"] = stats["planned_hits"]
    return result


def iterations(count: int) -> None:
    for i in range(count):
        adapter.begin_iteration(i)
        new(BLOCK).fill_(1)
        new(ODD).fill_(2)
        adapter.end_iteration(i)


def loop() -> dict[str, Any]:
    """What the plan is made of."""
    iterations(5)
    torch.cuda.synchronize()
    return {}


def clean() -> dict[str, Any]:
    """With a late kernel before each free, so that what is looked at too early would be seen."""
    for i in range(5):
        adapter.begin_iteration(i)
        for size in (BLOCK, ODD):
            block = new(size).fill_(1)
            torch.cuda._sleep(20_000_000)
            block.fill_(3)
            del block
        adapter.end_iteration(i)
    return watched()


def tail() -> dict[str, Any]:
    adapter.begin_iteration(0)
    new(BLOCK).fill_(1)
    block = new(ODD)
    torch.cuda._sleep(20_000_000)
    write(block.data_ptr() + ODD + 5, 0x41)
    del block  # before the write has happened
    adapter.end_iteration(0)
    return watched()


def freed() -> dict[str, Any]:
    adapter.begin_iteration(0)
    block = new(BLOCK).fill_(1)
    address = block.data_ptr()
    del block
    adapter.end_iteration(0)
    torch.cuda._sleep(20_000_000)
    write(address + 12345, 0x42)
    adapter.begin_iteration(1)
    again = new(BLOCK)
    same = again.data_ptr() == address
    adapter.end_iteration(1)
    return {**watched(), "same": same}


def nan() -> dict[str, Any]:
    """A reader after the free sees NaN."""
    adapter.begin_iteration(0)
    block = torch.zeros(BLOCK // 4, device="cuda")
    address = block.data_ptr()
    del block
    adapter.end_iteration(0)
    host = (ctypes.c_float * 4)()
    torch.cuda.synchronize()
    assert DRIVER.cuMemcpyDtoH_v2(host, ctypes.c_uint64(address), ctypes.c_size_t(16)) == 0
    return {**watched(), "nan": all(math.isnan(value) for value in host)}


def streams() -> dict[str, Any]:
    """A block that a side stream reads late is freed early, and recorded there: it must not be filled."""
    side = torch.cuda.Stream()
    equal = True
    for i in range(5):
        adapter.begin_iteration(i)
        block = new(BLOCK).fill_(7)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            least, most = block.min(), block.max()
        block.record_stream(side)
        del block
        new(ODD).fill_(2)
        adapter.end_iteration(i)
        torch.cuda.synchronize()
        equal = equal and int(least) == int(most) == 7
    return {**watched(), "equal": equal}


def capture() -> dict[str, Any]:
    """Blocks are freed while a graph is captured; the graph has the same result before and after."""
    adapter.begin_iteration(0)
    outside = new(BLOCK).fill_(1)
    static = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        del outside
        result = static + torch.ones(1001, device="cuda")[:1000]
    static.fill_(4)
    graph.replay()
    torch.cuda.synchronize()
    sums = [float(result.sum())]
    adapter.end_iteration(0)
    iterations(2)
    graph.replay()
    torch.cuda.synchronize()
    sums.append(float(result.sum()))
    return {**watched(), "sums": sums}


def main() -> None:
    adapter.install("cuda")
    adapter.show(globals()[sys.argv[1]]())


if __name__ == "__main__":
    main()
