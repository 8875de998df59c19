"""Cases of test_oom_cuda.py: memory_pressure.py CASE

A loop of two tensors, 2 and 1 GiB, that the plan puts into an arena; what a case requests beside them is the native
allocator's. The device is filled by one large native tensor, whatever its size.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import adapter
import torch

MIB = 1 << 20
GIB = 1 << 30
TENSORS = (2 * GIB, GIB)
_next = 0


def iterations(count: int, sizes: tuple[int, ...] = TENSORS) -> None:
    """Goes on with the loop; every tensor is filled, and looked at when all of them are."""
    global _next
    for index in range(_next, _next + count):
        adapter.begin_iteration(index)
        tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
        for number, tensor in enumerate(tensors):
            tensor.fill_(number + 1)
        assert [int(tensor[:: 64 * MIB].max()) for tensor in tensors] == list(range(1, len(sizes) + 1))
        del tensors, tensor
        adapter.end_iteration(index)
    _next += count
    torch.cuda.synchronize()


def native(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def free_bytes() -> int:
    return torch.cuda.mem_get_info()[0]


def own() -> dict[str, Any]:
    figures: dict[str, Any] = adapter.stats()["devices"][0]
    return figures


def watch() -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
    return seen


def loop() -> dict[str, Any]:
    iterations(4)
    return {}


def idle() -> dict[str, Any]:
    """A request that fits only where the arena's idle chunks go back; nobody hears of the first failure."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    seen = watch()
    iterations(3)
    arena = torch.cuda.memory_reserved()
    hog = native(free_bytes() + 2 * GIB)
    lent = own()["arena_lent_bytes"]
    reserved = torch.cuda.memory_reserved()
    actions = [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
    ooms = torch.cuda.memory_stats()["num_ooms"]
    assert reserved <= torch.cuda.mem_get_info()[1]
    del hog
    torch.cuda.empty_cache()
    hits = own()["planned_hits"]
    iterations(3)
    after = own()
    return {
        "arena": arena,
        "lent": lent,
        "observed": len(seen),
        "oom_entries": actions.count("oom"),
        "segment_free": actions.count("segment_free"),
        "ooms": ooms,
        "dynamic": after["dynamic_hits"],
        "reserved_after": torch.cuda.memory_reserved(),
        "lent_after": after["arena_lent_bytes"],
        "hits_after": after["planned_hits"] - hits,
        "unbacked": after["misses"]["unbacked"],
    }


def not_mapped() -> dict[str, Any]:
    """Chunks that cannot be mapped again are misses: the native allocator serves from what it took meanwhile."""
    iterations(3)
    hog = native(free_bytes() + 3 * GIB // 2)
    del hog  # cached
    iterations(2)
    during = own()
    torch.cuda.empty_cache()
    hits = during["planned_hits"]
    iterations(2)
    after = own()
    return {
        "unbacked": during["misses"]["unbacked"],
        "lent": during["arena_lent_bytes"],
        "unbacked_after": after["misses"]["unbacked"] - during["misses"]["unbacked"],
        "hits_after": after["planned_hits"] - hits,
        "lent_after": after["arena_lent_bytes"],
    }


def too_large() -> dict[str, Any]:
    """An error that stands: once to everybody, with what the arena holds; the process goes on."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    seen = watch()
    iterations(3)
    message = ""
    try:
        native(torch.cuda.mem_get_info()[1] + 10 * GIB)
    except torch.OutOfMemoryError as error:
        message = str(error)
    actions = [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
    ooms = torch.cuda.memory_stats()["num_ooms"]
    iterations(3)
    return {
        "message": message,
        "observed": len(seen),
        "oom_entries": actions.count("oom"),
        "ooms": ooms,
        "hits": own()["planned_hits"],
    }


def pool_open() -> dict[str, Any]:
    """A MemPool that no graph is captured into is served as all else is: with the arena's idle memory, where it takes
    that."""
    iterations(3)
    free = free_bytes()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        large = native(free + 2 * GIB)
    held = torch.cuda.memory_reserved()
    hits = own()["planned_hits"]
    del large, pool
    torch.cuda.empty_cache()
    iterations(3)
    return {"beyond_free": held - free, "hits_after": own()["planned_hits"] - hits}


def fraction_first() -> dict[str, Any]:
    """A memory fraction that was set before the first allocation holds for arena and native allocator together."""
    total = torch.cuda.mem_get_info()[1]
    share = 8 * GIB / total
    torch.cuda.set_per_process_memory_fraction(share)
    iterations(3)
    assert abs(torch.cuda.get_per_process_memory_fraction() - share) < 1e-9
    blocks = []
    try:
        while True:
            blocks.append(native(256 * MIB))
    except torch.OutOfMemoryError:
        pass
    reserved = torch.cuda.memory_reserved()
    blocks.clear()
    torch.cuda.empty_cache()
    iterations(2)
    return {"reserved": reserved, "hits": own()["planned_hits"]}


def fraction_below() -> dict[str, Any]:
    """A fraction below what the plan needs: a warning with both figures, and torch's error; without it all is well."""
    iterations(2)
    torch.cuda.set_per_process_memory_fraction(GIB / torch.cuda.mem_get_info()[1])
    reserved = torch.cuda.memory_reserved()
    failed = False
    try:
        iterations(1)
    except torch.OutOfMemoryError:
        failed = True
    torch.cuda.set_per_process_memory_fraction(1.0)
    hits = own()["planned_hits"]
    iterations(2)
    return {"reserved": reserved, "failed": failed, "hits_after": own()["planned_hits"] - hits}


_HOG = """
import sys, torch
block = torch.empty(torch.cuda.mem_get_info()[0] - (1 << 31), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
sys.stdin.read()
"""


def crowded() -> dict[str, Any]:
    """Somebody else has the device: the arena cannot be mapped, and the run goes on without it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STALLOC_")}
    other = subprocess.Popen(
        [sys.executable, "-c", _HOG], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        iterations(4, (64 * MIB, 32 * MIB))
        settings = torch._C._cuda_memorySnapshot(None)["allocator_settings"]
        return {"stats": adapter.stats(), "expandable": settings["expandable_segments"]}
    finally:
        other.communicate("")


def main() -> None:
    adapter.install("cuda")
    adapter.show(globals()[sys.argv[1]]())


if __name__ == "__main__":
    main()
