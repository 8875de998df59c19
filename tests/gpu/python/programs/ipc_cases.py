"""Cases of test_ipc_cuda.py: ipc_cases.py CASE. Tensors of a loop are shared with a process that has plain torch.

The loop is that of cuda_cases.py: in Alloc mode its tensors lie in the arena.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from ipc_receiver import pattern, serve
from torch import multiprocessing
from torch.multiprocessing.reductions import reduce_tensor

if __name__ == "__main__":  # the process that is started imports this file, and must not load the adapter
    import adapter
    from cuda_cases import MIB, SIZES, intact, iteration, served

PATIENCE_SECONDS = 120
CHUNK = 2 << 20  # of an arena of less than 2 GiB: the device's page


class Receiver:
    """Asks the other process. What is asked with tensors in it goes through torch's queue."""

    def __init__(self, queue: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._requests = getattr(context, queue)()
        self._answers = context.Queue()
        self._process = context.Process(target=serve, args=(self._requests, self._answers))
        self._process.start()

    def ask(self, what: str, *arguments: Any) -> Any:
        torch.cuda.synchronize()
        self._requests.put((what, *arguments))
        return self._answers.get(timeout=PATIENCE_SECONDS)

    def check(self, what: str, *arguments: Any) -> None:
        answer = self.ask(what, *arguments)
        assert answer is True, answer

    def end(self) -> None:
        self._requests.put(None)
        self._process.join(PATIENCE_SECONDS)
        assert self._process.exitcode == 0, self._process.exitcode


@contextlib.contextmanager
def started(queue: str = "SimpleQueue") -> Iterator[Receiver]:
    receiver = Receiver(queue)
    try:
        receiver.check("alone")
        yield receiver
    finally:
        receiver.end()


def chunks_of(tensor: torch.Tensor) -> set[int]:
    first = tensor.data_ptr()
    return set(range(first // CHUNK, (first + tensor.nbytes - 1) // CHUNK + 1))


def fill(tensors: list[torch.Tensor]) -> None:
    for key, tensor in enumerate(tensors):
        tensor.copy_(pattern(tensor.numel(), key))


def holds(tensor: torch.Tensor, key: int) -> bool:
    return torch.equal(tensor.cpu(), pattern(tensor.numel(), key))


def share_all(queue: str) -> dict[str, Any]:
    with started(queue) as receiver, iteration() as tensors:
        if served():
            assert len(chunks_of(tensors[3])) > 30, "one lies in many chunks"
            others = [other for other in tensors if other is not tensors[2]]
            assert any(chunks_of(tensors[2]) & chunks_of(other) for other in others), "two lie in one"
        fill(tensors)
        for key, tensor in enumerate(tensors):
            receiver.check("holds", tensor, key)
        for key in (1, 2, 4):
            receiver.check("write", tensors[key], 10 + key)
        for key, tensor in enumerate(tensors):
            assert holds(tensor, 10 + key if key in (1, 2, 4) else key), key
        receiver.check("holds", tensors[2], 12)  # once more, after it was written
    with iteration() as tensors:
        assert intact(tensors)
    return {"served": served(), "unknown_frees": adapter.stats()["unknown_frees"]}


# What programs do ----------------------------------------------------------------------------------------------------


def queue() -> dict[str, Any]:
    """Tensors through a queue that pickles in a thread of its own: read there, written there, seen here."""
    return share_all("Queue")


def simple_queue() -> dict[str, Any]:
    return share_all("SimpleQueue")


def views() -> dict[str, Any]:
    """Views that begin inside a block; a write through one touches nothing else."""
    with started() as receiver, iteration() as tensors:
        fill(tensors)
        large = tensors[3]
        begin, end = 5 * MIB + 24, 41 * MIB
        assert torch.equal(large[begin:end].cpu(), pattern(SIZES[3], 3)[begin:end])
        large[begin:end].copy_(pattern(end - begin, 20))
        receiver.check("holds", large[begin:end], 20)
        receiver.check("write", large[begin:end], 21)
        receiver.check("holds", tensors[2][3:500].copy_(pattern(497, 22)), 22)
        there = large.cpu()
        assert torch.equal(there[begin:end], pattern(end - begin, 21))
        assert torch.equal(there[:begin], pattern(begin, 3))
        assert torch.equal(there[end:], pattern(SIZES[3], 3)[end:])
        assert holds(tensors[0], 0)
        assert holds(tensors[4], 4)
    return {"served": served()}


def rebuilt() -> dict[str, Any]:
    """As frameworks send weights: how to rebuild a tensor goes through any channel of theirs."""
    with started() as receiver, iteration() as tensors:
        fill(tensors)
        for key, tensor in enumerate(tensors):
            function, arguments = reduce_tensor(tensor)
            receiver.check("holds_rebuilt", function, arguments, key)
    return {"served": served()}


def native() -> dict[str, Any]:
    """What the native allocator gave out, beside an arena, it shares as ever."""
    with started() as receiver, iteration() as tensors:
        pool = torch.cuda.MemPool()
        pool.snapshot()  # from now on it is the native allocator's
        with torch.cuda.use_mem_pool(pool):
            pooled = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        pooled.copy_(pattern(MIB, 30))
        receiver.check("holds", pooled, 30)
        receiver.check("write", pooled, 31)
        assert holds(pooled, 31)
        assert intact(tensors)
        del pooled
    return {"served": served()}


# Memory --------------------------------------------------------------------------------------------------------------


def lifetime() -> dict[str, Any]:
    """A block lives as long as the receiver has it. Then its chunks go, and others come to their places."""
    with started() as receiver:
        descriptors = len(os.listdir("/proc/self/fd"))
        for key in range(3):
            with iteration() as tensors:
                tensors[3].copy_(pattern(SIZES[3], key))
                receiver.check("keep", tensors[3])
            with iteration() as tensors:  # the slot is taken: other memory for the same request
                torch.cuda.empty_cache()
                assert intact(tensors)
                receiver.check("kept_holds", key)
            torch.cuda.empty_cache()
            receiver.check("kept_holds", key)
            held = torch.cuda.memory_reserved()
            assert held >= SIZES[3], held
            receiver.check("drop")
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
            assert torch.cuda.memory_reserved() <= held - SIZES[3], "what the receiver let go of"
            assert len(os.listdir("/proc/self/fd")) <= descriptors + 16, "those of 32 chunks are closed"
    with iteration() as tensors:
        assert intact(tensors)
    return {"served": served(), "unknown_frees": adapter.stats()["unknown_frees"]}


if __name__ == "__main__":
    adapter.run_case(globals())
