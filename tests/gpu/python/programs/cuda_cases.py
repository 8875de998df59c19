"""Cases of test_adapter_cuda.py: cuda_cases.py CASE

Each case runs inside an iteration of a loop that requests the same tensors every time, so that in Alloc mode those lie
in the arena: `with iteration(...) as tensors`. What a case itself requests is not in the plan: the native allocator's.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import adapter
import torch
from torch.cuda import _gpu_trace

MIB = 1 << 20
SIZES = (4 * MIB, 9 * MIB, 700, 64 * MIB, 3 * MIB + 512)
ROUNDED = sum((size + 511) // 512 * 512 for size in SIZES)
_iterations = 0


@contextlib.contextmanager
def iteration(loops: int = 3, pool: torch.cuda.MemPool | None = None) -> Iterator[list[torch.Tensor]]:
    """Goes through `loops` iterations, then begins one whose tensors live inside the `with` block, of a pool or not."""
    global _iterations
    for last in [False] * loops + [True]:
        adapter.begin_iteration(_iterations)
        _iterations += 1
        with torch.cuda.use_mem_pool(pool) if pool is not None else contextlib.nullcontext():
            tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in SIZES]
        for number, tensor in enumerate(tensors):
            tensor.fill_(number + 1)
        if last:
            yield tensors
        tensors.clear()
        del tensor
        adapter.end_iteration(_iterations - 1)


def served() -> bool:
    """Our memory, not the native allocator's, holds what iterations request."""
    stats = adapter.stats()
    return bool(stats["planned_hits"] or stats["heap_hits"])


def intact(tensors: list[torch.Tensor]) -> bool:
    """Every tensor has its fill, found without temporary tensors of their size."""
    return all(int(tensor.min()) == int(tensor.max()) == number + 1 for number, tensor in enumerate(tensors))


def loop() -> dict[str, Any]:
    with iteration(4):
        pass
    return {}


# Figures -------------------------------------------------------------------------------------------------------------


def statistics() -> dict[str, Any]:
    with iteration():
        pass
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    extra = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")  # native's
    with iteration(0) as tensors:
        during = torch.cuda.memory_stats()
        native_peak = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        del native_peak
        assert intact(tensors)
    after = torch.cuda.memory_stats()
    grown = during["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
    slack = 0 if served() else 4 * MIB  # the native allocator leaves up to 1 MiB of a cached block unsplit
    assert ROUNDED + 20 * MIB <= grown <= ROUNDED + 20 * MIB + slack, grown
    assert during["requested_bytes.all.current"] - before["requested_bytes.all.current"] == sum(SIZES) + 20 * MIB
    assert during["allocation.all.current"] - before["allocation.all.current"] == len(SIZES) + 1
    small = during["allocation.small_pool.current"] - before["allocation.small_pool.current"]
    assert small == 1, "blocks count in the pool of their size, wherever they are"
    assert after["requested_bytes.all.current"] == before["requested_bytes.all.current"] + 20 * MIB
    start = before["allocated_bytes.all.current"]
    peak = torch.cuda.max_memory_allocated() - start
    assert ROUNDED + 52 * MIB <= peak <= ROUNDED + 53 * MIB + slack, "the peak of the sum, not the sum of the peaks"
    assert torch.cuda.memory_allocated() == torch.accelerator.memory_allocated()
    assert torch.cuda.max_memory_allocated() == torch.accelerator.max_memory_allocated()
    assert torch.cuda.memory_reserved() == torch.accelerator.memory_reserved()
    stats = adapter.stats()
    own = stats["devices"][0]
    assert torch.cuda.memory_reserved() >= own["arena_bytes"] + own["heap_bytes"]
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() > 0
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert "GPU reserved memory" in torch.cuda.memory_summary()
    assert after["num_alloc_retries"] == 0
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    del extra
    return {"served": served(), "keys": sorted(after)}


def native_keys() -> dict[str, Any]:
    torch.ones(1, device="cuda")
    return {"keys": sorted(torch.cuda.memory_stats())}


def snapshot() -> dict[str, Any]:
    torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
    with iteration() as tensors:
        addresses = [tensor.data_ptr() for tensor in tensors]
        segments = torch.cuda.memory_snapshot()
        full = torch.cuda.memory._snapshot()
        torch.cuda.memory._dump_snapshot("dump.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)
    for address in addresses:
        home = [s for s in segments if s["address"] <= address < s["address"] + s["total_size"]]
        assert len(home) == 1, f"{len(home)} segments hold a live tensor"
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        allocated = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
        assert allocated == segment["allocated_size"]
    trace = full["device_traces"][0]
    times = [entry["time_us"] for entry in trace]
    assert times == sorted(times)
    actions: dict[str, int] = {}
    for entry in trace:
        actions[entry["action"]] = actions.get(entry["action"], 0) + 1
    assert actions["alloc"] >= 4 * len(SIZES)
    assert actions["free_completed"] >= 3 * len(SIZES)
    frames = [frame["filename"] for entry in trace if entry["action"] == "alloc" for frame in entry.get("frames", [])]
    assert any(name.endswith("cuda_cases.py") for name in frames)
    return {"served": served(), "segments": len(segments)}


def profiler() -> dict[str, Any]:
    with iteration():
        pass
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile, iteration(0):
        pass
    sizes = [event.device_memory_usage for event in profile.events() if event.device_memory_usage]
    assert sum(size for size in sizes if size > 0) >= ROUNDED
    return {"served": served()}


def gpu_trace() -> dict[str, Any]:
    """The callbacks by which the CUDA sanitizer knows which memory is alive."""
    allocated: set[int] = set()
    freed: set[int] = set()
    torch._C._activate_gpu_trace()
    _gpu_trace.register_callback_for_memory_allocation(allocated.add)
    _gpu_trace.register_callback_for_memory_deallocation(freed.add)
    with iteration() as tensors:
        addresses = {tensor.data_ptr() for tensor in tensors}
        assert addresses <= allocated
    assert addresses <= freed
    return {"served": served()}


# Order ---------------------------------------------------------------------------------------------------------------


def deleters() -> dict[str, Any]:
    pool = torch.cuda.MemPool()
    with iteration() as tensors:
        with torch.cuda.use_mem_pool(pool):
            tensors.append(torch.empty(MIB, device="cuda"))
        tensors.append(torch.empty(MIB, device="cuda"))
        for tensor in tensors:
            assert torch._C._has_Standard_Deleter(tensor.untyped_storage()._cdata)
    return {"served": served()}


def record_stream() -> dict[str, Any]:
    """A side stream reads a block long after its free; what takes its place must not show."""
    side = torch.cuda.Stream()
    sums = []
    with iteration():
        pass
    for _ in range(5):
        with iteration(0) as tensors:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(200_000_000)
                sums.append(tensors[3].sum(dtype=torch.int64))
            tensors[3].record_stream(side)
            tensors[3] = tensors[2]
        with iteration(1) as tensors:
            tensors[3].fill_(99)
    torch.cuda.synchronize()
    assert [int(value) for value in sums] == [4 * SIZES[3]] * 5, sums
    return {"served": served()}


def capture() -> dict[str, Any]:
    """A graph's addresses stay its own between replays."""
    with iteration():
        pass
    source = torch.arange(MIB, device="cuda", dtype=torch.float32)
    graph = torch.cuda.CUDAGraph()
    hits = adapter.stats()["planned_hits"]
    with torch.cuda.graph(graph):
        result = (torch.empty(SIZES[0] // 4, device="cuda").fill_(1) + source * 2).sum()
    assert adapter.stats()["planned_hits"] == hits, "captured requests are never the plan's"
    for step in range(3):
        with iteration(1) as tensors:
            filler = [torch.full((MIB,), -1.0, device="cuda") for _ in range(8)]
            source.fill_(step)
            graph.replay()
            assert intact(tensors)
            del filler
        assert result.item() == MIB * (1 + 2 * step)
    return {"served": served()}


def graph_gone() -> dict[str, Any]:
    """A graph that is replayed on another stream than its own, and gone while it runs: emptied caches wait for it."""
    with iteration() as tensors:
        side = torch.cuda.Stream()
        for _ in range(3):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(side):
                graph.capture_begin()
                result = torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda") + 1
                graph.capture_end()
            torch.cuda._sleep(400_000_000)
            graph.replay()
            del graph, result
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        assert intact(tensors)
        return {"served": served()}


def checkpoint() -> dict[str, Any]:
    """Graph trees set a pool back to an earlier state; dynamo's backend of that name uses them."""

    @torch.compile(backend="cudagraphs")
    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight).sin() @ weight

    weight = torch.randn(64, 64, device="cuda")
    x = torch.randn(64, 64, device="cuda")
    expected = torch.relu(x @ weight).sin() @ weight
    for _ in range(6):
        with iteration(0):
            torch.compiler.cudagraph_mark_step_begin()
            first = step(x, weight).clone()
            second = step(first, weight).clone()
        assert torch.allclose(first, expected)
    assert torch.allclose(second, torch.relu(expected @ weight).sin() @ weight, rtol=1e-4)
    return {"unknown_frees": adapter.stats()["unknown_frees"]}


def mempool() -> dict[str, Any]:
    pool = torch.cuda.MemPool()
    with iteration() as tensors:
        with torch.cuda.use_mem_pool(pool):
            inside = torch.full((8 * MIB,), 7, dtype=torch.uint8, device="cuda")
        address = inside.data_ptr()
        segments = pool.snapshot()
        assert any(s["address"] <= address < s["address"] + s["total_size"] for s in segments)
        for tensor in tensors:
            assert not any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)
        assert bool((inside == 7).all())
        assert intact(tensors)
        del inside
    del pool
    torch.cuda.empty_cache()
    return {"served": served()}


def _apart(tensors: list[torch.Tensor], ranges: list[tuple[int, int]]) -> bool:
    """No tensor has a byte in one of the ranges."""
    begins = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors]
    return all(end <= low or high <= begin for begin, end in begins for low, high in ranges)


def mempool_planned() -> dict[str, Any]:
    """A pool's requests are in the plan. What its snapshot has shown stays the pool's; then a graph uses it."""
    pool = torch.cuda.MemPool()
    with iteration(3, pool) as tensors:
        assert intact(tensors)
        before = adapter.stats()["planned_hits"]
        segments = pool.snapshot()
        shown = [(s["address"], s["address"] + s["total_size"]) for s in segments]
        for tensor in tensors:
            assert (
                sum(low <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= high for low, high in shown) == 1
            )
        assert all(tuple(s["segment_pool_id"]) == pool.id for s in segments)
    with iteration(2) as tensors:
        assert _apart(tensors, shown), "its bytes are the pool's"
        assert intact(tensors)
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(MIB, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool.id):
        y = (x + 1) * 2
    with iteration(2, pool) as tensors:
        graph.replay()
        assert bool((y == 2).all())
        assert intact(tensors)
        x.fill_(3)
        graph.replay()
        assert intact(tensors)
    assert bool((y == 8).all())
    del graph, y, pool
    with iteration(2) as tensors:
        assert intact(tensors)
    return {"served": served(), "in_pool": before > 0, "afterwards": adapter.stats()["planned_hits"] > before}


def threads() -> dict[str, Any]:
    """Requests of several threads and streams at once, with contents checked."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(200):
                block = torch.full((1 + (step * 7919 + seed) % (2 * MIB),), seed, dtype=torch.uint8, device="cuda")
                if not bool((block == seed).all()):
                    wrong.append(seed)

    with iteration():
        pass
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for _ in range(20):
        with iteration(1) as tensors:
            assert intact(tensors)
    for worker in workers:
        worker.join()
    return {"wrong": wrong, "unknown_frees": adapter.stats()["unknown_frees"]}


# Limits --------------------------------------------------------------------------------------------------------------


def out_of_memory() -> dict[str, Any]:
    seen: list[tuple[int, ...]] = []
    with iteration() as tensors:
        torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
        messages = []
        for size in (10 << 40, 1 << 60):
            try:
                torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                messages.append(str(error))
        assert "CUDA out of memory. Tried to allocate 10240.00 GiB. GPU 0 has a total capacity of" in messages[0]
        assert "more than 1EB memory" in messages[1]
        assert len(seen) == 1, "once, and not for what no device could ever hold"
        assert seen[0][0] == 0
        assert torch.cuda.memory_stats()["num_ooms"] >= 1
        again = torch.full((MIB,), 5, dtype=torch.uint8, device="cuda")
        assert intact(tensors)
        assert bool((again == 5).all())
        described = "stalloc: the plan's arena holds" in messages[0] or "stalloc: the exact trace" in messages[0]
        assert described == served()
    return {"served": served()}


def fraction() -> dict[str, Any]:
    with iteration():
        pass
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.125)
    assert torch.cuda.get_per_process_memory_fraction() == 0.125
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    reserved = torch.cuda.memory_reserved()
    assert 0.1 * total < reserved <= 0.13 * total, (reserved, total)
    blocks.clear()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(total // 4, dtype=torch.uint8, device="cuda").numel() == total // 4
    return {"served": served()}


def empty_cache() -> dict[str, Any]:
    """What nobody uses goes back to the device, and comes back when it is needed."""

    def empty_and_look() -> None:
        reserved_before, free_before = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
        torch.cuda.empty_cache()
        given = reserved_before - torch.cuda.memory_reserved()
        assert given >= 400 * MIB, given
        assert torch.cuda.mem_get_info()[0] >= free_before + 400 * MIB
        assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()

    with iteration() as tensors:
        torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        empty_and_look()
        assert intact(tensors)
    with iteration() as tensors:
        torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        assert intact(tensors)
    empty_and_look()
    assert torch.cuda.memory_reserved() < 64 * MIB, "nothing large is alive"
    with iteration() as tensors:
        assert intact(tensors)
    return {"served": served()}


# The rest ------------------------------------------------------------------------------------------------------------


def raw() -> dict[str, Any]:
    with iteration(3):
        pointer = torch.cuda.caching_allocator_alloc(5 * MIB)
        torch.cuda.caching_allocator_delete(pointer)
        message = ""
        try:
            torch.cuda.caching_allocator_delete(12345 * 512)
        except RuntimeError as error:
            message = str(error)
        assert "invalid device pointer" in message, message
    assert torch.empty(0, device="cuda").data_ptr() == 0
    assert torch.cuda.get_allocator_backend() == "native"
    return {}


def uncached() -> dict[str, Any]:
    """Started with caching; the native allocator's switch is thrown while blocks of ours are alive."""
    with iteration() as tensors:
        torch.cuda.memory.caching_allocator_enable(False)
        direct = torch.full((MIB,), 3, dtype=torch.uint8, device="cuda")
        direct.record_stream(torch.cuda.Stream())
        assert intact(tensors)
        tensors.clear()
        assert bool((direct == 3).all())
        del direct
        torch.cuda.memory.caching_allocator_enable(True)
    with iteration() as tensors:
        assert intact(tensors)
    return {"unknown_frees": adapter.stats()["unknown_frees"]}


def always_uncached() -> dict[str, Any]:
    with iteration() as tensors:
        assert intact(tensors)
        assert torch.cuda.memory_allocated() == 0
    return {"served": served()}


def cudnn_benchmark() -> dict[str, Any]:
    torch.backends.cudnn.benchmark = True
    convolution = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    with iteration():
        image = torch.randn(8, 16, 64, 64, device="cuda", requires_grad=True)
        convolution(image).sum().backward()
        assert image.grad is not None
    return {}


def peers() -> dict[str, Any]:
    if torch.cuda.device_count() < 2:
        return {"skipped": "one GPU"}
    with iteration() as tensors:
        for tensor in tensors[:3]:
            there = tensor.to("cuda:1")
            assert torch.equal(there.cpu(), tensor.cpu())
            tensor.copy_(there)
        assert intact(tensors)
    return {"served": served()}


def too_late() -> dict[str, Any]:
    torch.cuda.init()
    return {"error": adapter.try_install("cuda")}


if __name__ == "__main__":
    adapter.run_case(globals(), installs=sys.argv[1] not in ("native_keys", "too_late"))
