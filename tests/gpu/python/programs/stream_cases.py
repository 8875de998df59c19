"""Cases of test_streams_cuda.py: stream_cases.py CASE

Each case runs iterations that request the same three blocks as `loop` does, the second on a side stream, one after the
other, so that a plan has them in the same bytes. What is done with a block is done late, behind a kernel that sleeps:
its bytes have a new owner by then, unless streams wait for each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import adapter
import torch

MIB = 1 << 20
FIRST, SECOND, THIRD = 64 * MIB, 64 * MIB + 512, 64 * MIB + 1024
LATE = 100_000_000  # cycles: some 50 ms
_iterations = 0


def new(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def late() -> None:
    """Keeps the current stream busy."""
    torch.cuda._sleep(LATE)


@contextlib.contextmanager
def iteration() -> Iterator[None]:
    global _iterations
    adapter.begin_iteration(_iterations)
    yield
    adapter.end_iteration(_iterations)
    _iterations += 1


def holds(tensor: torch.Tensor, value: int) -> bool:
    """After all work. Reads on the host, so that nothing is requested on the device."""
    torch.cuda.synchronize()
    host = tensor.cpu()
    return int(host.min()) == int(host.max()) == value


def overlap(*addresses: int) -> bool:
    return max(addresses) - min(addresses) < FIRST


def figures(*addresses: int) -> dict[str, Any]:
    """`shared`: the blocks at these addresses, all of device 0, had bytes in common."""
    stats = next(device for device in adapter.stats()["devices"] if device["device"] == 0)
    return {
        "shared": overlap(*addresses),
        "hits": stats["planned_hits"],
        "dynamic_hits": stats["dynamic_hits"],
        "waits": stats["stream_waits"],
        "unknown_frees": stats["unknown_frees"],
    }


def loop() -> dict[str, Any]:
    """What the plan is made of."""
    side = torch.cuda.Stream()
    for _ in range(5):
        with iteration():
            new(FIRST).fill_(1)
            with torch.cuda.stream(side):
                new(SECOND).fill_(2)
            new(THIRD).fill_(3)
    torch.cuda.synchronize()
    return {}


def write_late(size: int, value: int) -> int:
    """The address of a block that the current stream still writes to when it is freed."""
    block = new(size)
    late()
    block.fill_(value)
    return block.data_ptr()


def change_streams(side: torch.cuda.Stream, third_on: Callable[[], torch.cuda.Stream | None]) -> dict[str, Any]:
    """The main stream writes late to a block that `side` takes over, and `side` to one that the third stream does."""
    addresses: list[int] = []
    for _ in range(5):
        with iteration():
            addresses = [write_late(FIRST, 11)]
            with torch.cuda.stream(side):
                second = new(SECOND).fill_(22)
            addresses.append(second.data_ptr())
            assert holds(second, 22), "the main stream wrote over the side stream's block"
            with torch.cuda.stream(side):
                late()
                second.fill_(23)
            del second
            with torch.cuda.stream(third_on()):
                third = new(THIRD).fill_(33)
            addresses.append(third.data_ptr())
            assert holds(third, 33), "the side stream wrote over the third block"
            del third
    return figures(*addresses)


def planned() -> dict[str, Any]:
    return change_streams(torch.cuda.Stream(), lambda: None)


def diverging() -> dict[str, Any]:
    """The hand-over is not the plan's: the second block is left out, the third asked for on a stream of its own."""
    loop()
    return change_streams(torch.cuda.Stream(), torch.cuda.Stream)


def unrecorded() -> dict[str, Any]:
    """Another stream writes to a block late, unrecorded, and frees it: safe with a pool for each stream."""
    side, writer = torch.cuda.Stream(), torch.cuda.Stream()
    addresses: list[int] = []
    for _ in range(5):
        with iteration():
            first = new(FIRST)
            writer.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(writer):
                late()
                first.fill_(11)
                addresses = [first.data_ptr()]
                del first
            with torch.cuda.stream(side):
                second = new(SECOND).fill_(22)
            addresses.append(second.data_ptr())
            assert holds(second, 22), "written over by the stream on which the first block was freed"
            torch.cuda.current_stream().wait_stream(writer)
            del second
            new(THIRD).fill_(33)
    return figures(*addresses)


def recorded() -> dict[str, Any]:
    """Another stream was recorded on the block, and writes to it long after its free."""
    side, third_stream = torch.cuda.Stream(), torch.cuda.Stream()
    addresses: list[int] = []
    for _ in range(5):
        with iteration():
            first = new(FIRST)
            third_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(third_stream):
                late()
                first.fill_(11)
            first.record_stream(third_stream)
            addresses = [first.data_ptr()]
            del first
            with torch.cuda.stream(side):
                second = new(SECOND).fill_(22)
            addresses.append(second.data_ptr())
            assert holds(second, 22), "written over by the recorded stream"
            second.record_stream(third_stream)
            with torch.cuda.stream(third_stream):
                late()
                second.fill_(23)
            second.record_stream(torch.cuda.current_stream())
            del second
            third = new(THIRD).fill_(33)
            addresses.append(third.data_ptr())
            assert holds(third, 33), "written over by the recorded stream"
            del third
    return figures(*addresses)


def fallback() -> dict[str, Any]:
    """Blocks that the plan does not know, beside such that it does."""
    side = torch.cuda.Stream()
    size = 48 * MIB
    for _ in range(5):
        with iteration():
            first = new(FIRST).fill_(1)
            unplanned = new(size)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                late()
                unplanned.fill_(11)
            unplanned.record_stream(side)
            del unplanned
            others = [new(size).fill_(22) for _ in range(3)]
            with torch.cuda.stream(side):
                others += [new(size).fill_(22) for _ in range(3)]
            assert all(holds(other, 22) for other in others)
            assert holds(first, 1)
            del first, others
            with torch.cuda.stream(side):
                assert holds(new(SECOND).fill_(2), 2)
            assert holds(new(THIRD).fill_(3), 3)
    return figures(0)


def capture() -> dict[str, Any]:
    """A graph is captured while bytes wait to change hands; the hand-over comes right afterwards."""
    loop()
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    source = torch.ones(MIB, device="cuda")
    assert (source * 2).sum().item() == 2 * MIB  # loads the kernels
    addresses: list[int] = []
    for _ in range(3):
        with iteration():
            first = new(FIRST).fill_(1)
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                result = source * 2
                addresses = [first.data_ptr()]
                del first
            late()
            graph.replay()
            with torch.cuda.stream(side):
                second = new(SECOND).fill_(22)
            addresses.append(second.data_ptr())
            assert holds(second, 22)
            assert result.sum().item() == 2 * MIB
            del second, result
            assert holds(new(THIRD).fill_(33), 33)
            graph.reset()
            graph = torch.cuda.CUDAGraph()
    return figures(*addresses)


def peers() -> dict[str, Any]:
    """A copy to another device, whose default stream is recorded. Its handle is that of ours."""
    if torch.cuda.device_count() < 2:
        return {"skipped": "one GPU"}
    default = torch.cuda.default_stream(1)
    there = torch.zeros(FIRST, dtype=torch.uint8, device="cuda:1")
    addresses: list[int] = []
    for value in range(1, 6):
        with iteration():
            first = new(FIRST).fill_(value)
            addresses = [first.data_ptr()]
            default.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(default):
                late()
                there.copy_(first, non_blocking=True)
            first.record_stream(default)
            del first
            with torch.cuda.stream(torch.cuda.Stream()):
                addresses.append(new(SECOND).fill_(200).data_ptr())
            addresses.append(new(THIRD).fill_(201).data_ptr())
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        host = there.cpu()
        assert int(host.min()) == int(host.max()) == value, "the copy read another block's bytes"
    return figures(*addresses)


if __name__ == "__main__":
    adapter.run_case(globals())
