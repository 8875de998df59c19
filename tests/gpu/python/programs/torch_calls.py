"""Cases of test_torch_calls_cuda.py: torch_calls.py CASE

Like cuda_cases.py, whose loop and plan they share: calls that a training program makes around its tensors, with tensors
of the arena alive.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from typing import Any

import adapter
import torch
from cuda_cases import MIB, SIZES, intact, iteration, served
from torch.cuda import _memory_viz


def settings() -> dict[str, Any]:
    found: dict[str, Any] = torch._C._cuda_memorySnapshot(None)["allocator_settings"]
    return found


def memory_viz() -> dict[str, Any]:
    """A dumped snapshot goes through all of torch's own readers, and they agree with what is alive."""
    torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
    with iteration() as tensors:
        torch.cuda.memory._dump_snapshot("dump.pickle")
        addresses = [tensor.data_ptr() for tensor in tensors]
    torch.cuda.memory._record_memory_history(enabled=None)
    with open("dump.pickle", "rb") as file:
        data = pickle.load(file)
    assert "<html>" in _memory_viz.trace_plot(data)
    assert "<html>" in _memory_viz.trace_plot(data, plot_segments=True)
    assert "<html>" in _memory_viz.segment_plot(data)
    text = _memory_viz.trace(data)
    assert "Device 0" in text
    assert _memory_viz.segsum(data)
    folded = str(_memory_viz.memory(data, format_flamegraph=lambda lines: lines))
    assert "torch_calls.py" in folded or "cuda_cases.py" in folded, "stacks of live blocks"
    assert _memory_viz.segments(data, format_flamegraph=lambda lines: lines)
    live = {
        block["address"]: block
        for segment in data["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    for address, size in zip(addresses, SIZES):
        assert live[address]["requested_size"] == size
        assert live[address]["frames"], "recorded stacks are with the blocks"
    open_allocations: dict[int, int] = {}
    for entry in data["device_traces"][0]:
        if entry["action"] == "alloc":
            open_allocations[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            open_allocations.pop(entry["addr"], None)
    assert set(addresses) <= set(open_allocations)
    assert "<html>" in _memory_viz.trace_plot(data, filter_freed=True)  # last: it takes entries out
    return {"served": served()}


def consistent() -> dict[str, Any]:
    """Figures add up at every moment, also while a freed block waits for another stream."""
    side = torch.cuda.Stream()

    def check() -> None:
        torch_stats = torch.cuda.memory_stats()
        for pool in ("all", "large_pool", "small_pool"):
            bytes_of = {
                name: torch_stats[f"{name}.{pool}.current"]
                for name in (
                    "allocated_bytes",
                    "active_bytes",
                    "reserved_bytes",
                    "inactive_split_bytes",
                    "requested_bytes",
                )
            }
            # Requested bytes count until a block is no longer active: torch's own figures can exceed what is allocated.
            assert 0 <= bytes_of["requested_bytes"] <= bytes_of["active_bytes"], bytes_of
            assert bytes_of["allocated_bytes"] <= bytes_of["active_bytes"], bytes_of
            assert bytes_of["inactive_split_bytes"] >= 0, bytes_of
        totals = {name: torch_stats[f"{name}.all.current"] for name in ("active_bytes", "reserved_bytes")}
        assert totals["active_bytes"] <= totals["reserved_bytes"], totals
        for name in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes"):
            assert torch_stats[f"{name}.all.peak"] >= torch_stats[f"{name}.all.current"], name
            allocated, freed = torch_stats[f"{name}.all.allocated"], torch_stats[f"{name}.all.freed"]
            assert allocated - freed == torch_stats[f"{name}.all.current"], name
        segments = torch.cuda.memory_snapshot()
        assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
        assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated()

    for _ in range(4):
        with iteration(0) as tensors:
            check()
            with torch.cuda.stream(side):
                torch.cuda._sleep(50_000_000)
            tensors[1].record_stream(side)
            del tensors[1]
            check()
        check()
    torch.cuda.synchronize()
    return {"served": served()}


def free_completed() -> dict[str, Any]:
    """A free is complete when no stream uses the bytes any more, or when somebody else has them."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    side = torch.cuda.Stream()

    def actions(address: int) -> list[str]:
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        return [entry["action"] for entry in trace if entry["addr"] == address]

    with iteration() as tensors:
        address = tensors[3].data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000_000)
            total = tensors[3].sum(dtype=torch.int64)
        tensors[3].record_stream(side)
        tensors[3] = tensors[2]
        during = actions(address)
    torch.cuda.synchronize()
    with iteration():
        pass
    after = actions(address)
    torch.cuda.memory._record_memory_history(enabled=None)
    assert int(total) == 4 * SIZES[3]
    return {"served": served(), "during": during[-1], "after": after}


def pinned() -> dict[str, Any]:
    """Pinned host memory is torch's own; copies to and from the arena are right."""
    with iteration() as tensors:
        requests = adapter.stats()["requests"]
        host = torch.empty(SIZES[1], dtype=torch.uint8, pin_memory=True)
        assert host.is_pinned()
        host.copy_(tensors[1], non_blocking=True)
        torch.cuda.synchronize()
        assert int(host.min()) == int(host.max()) == 2
        host.fill_(9)
        tensors[1].copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        assert adapter.stats()["requests"] == requests, "no device memory was asked for"
        assert int(tensors[1].min()) == 9
        tensors[1].fill_(2)
        assert intact(tensors)
    return {"served": served()}


def devices() -> dict[str, Any]:
    """Two devices in one process: each has its own figures, and tensors go from one to the other."""
    if torch.cuda.device_count() < 2:
        return {"skipped": "one GPU"}
    with iteration() as tensors:
        before = torch.cuda.memory_allocated(0)
        there = torch.full((8 * MIB,), 5, dtype=torch.uint8, device="cuda:1")
        assert torch.cuda.memory_allocated(0) == before
        assert torch.cuda.memory_allocated(1) >= 8 * MIB
        copies = [tensor.to("cuda:1") for tensor in tensors]
        torch.cuda.synchronize(1)
        for number, copy in enumerate(copies):
            assert int(copy.min()) == int(copy.max()) == number + 1
        back = [copy.to("cuda:0") for copy in copies]
        for number, copy in enumerate(back):
            assert int(copy.min()) == int(copy.max()) == number + 1
        with torch.cuda.device(1):
            for _ in range(3):
                other = torch.full((MIB,), 3, dtype=torch.uint8, device="cuda")
                assert int(other.sum()) == 3 * MIB
        del other, copies, back
        assert intact(tensors)
        assert int(there.min()) == 5
        assert {segment["device"] for segment in torch.cuda.memory_snapshot()} == {0, 1}
        del there
    torch.cuda.synchronize(1)
    return {"served": served(), "unknown_frees": sum(d["unknown_frees"] for d in adapter.stats()["devices"])}


def fork() -> dict[str, Any]:
    """A child has torch's own error for CUDA, and leaves the parent's tensors alone."""
    torch.set_num_threads(1)
    with iteration() as tensors:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.ones(3, device="cuda")
            except RuntimeError as error:
                code = 0 if "Cannot re-initialize CUDA in forked subprocess" in str(error) else 2
            tensors.clear()  # frees in the child: they must do nothing
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert intact(tensors)
    with iteration(1) as tensors:
        assert intact(tensors)
    return {"served": served(), "child": os.waitstatus_to_exitcode(status)}


def expandable() -> dict[str, Any]:
    with iteration():
        extra = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        address = extra.data_ptr()
        homes = [s for s in torch.cuda.memory_snapshot() if s["address"] <= address < s["address"] + s["total_size"]]
        del extra
    return {
        "served": served(),
        "settings": settings()["expandable_segments"],
        "segment": homes[0]["is_expandable"],
        "conf": settings()["PYTORCH_CUDA_ALLOC_CONF"],
    }


def change_allocator() -> dict[str, Any]:
    """torch's own words for a second swap."""
    with iteration():
        pass
    library = os.path.join(os.path.dirname(os.environ["STALLOC_TORCH_LIB"]), "libstalloc.so")
    if not os.path.exists(library):
        return {"skipped": "no libstalloc.so beside the adapter"}
    message = ""
    try:
        other = torch.cuda.memory.CUDAPluggableAllocator(library, "stalloc_malloc", "stalloc_free")
        torch.cuda.memory.change_current_allocator(other)
    except RuntimeError as error:
        message = str(error)
    with iteration(1) as tensors:
        assert intact(tensors)
    return {"message": message}


# Ends of a process: each leaves something alive ----------------------------------------------------------------------

kept: list[Any] = []


def exit_with_tensors() -> dict[str, Any]:
    with iteration() as tensors:
        kept.extend(tensors)
    return {"served": served()}


def exit_with_graphs() -> dict[str, Any]:
    with iteration() as tensors:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = torch.full((MIB,), 3.0, device="cuda") * 2
        graph.replay()
        assert result.sum().item() == 6 * MIB
        kept.extend([graph, result, *tensors])
    return {"served": served()}


def exit_with_threads() -> dict[str, Any]:
    """Daemon threads go on allocating and freeing while the interpreter ends."""

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            while True:
                kept.append(torch.full((MIB,), 1, dtype=torch.uint8, device="cuda"))
                if len(kept) > 8:
                    del kept[:4]

    with iteration() as tensors:
        kept.extend(tensors)
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    return {"served": "--native" not in sys.argv and served()}


if __name__ == "__main__":
    adapter.run_case(globals(), installs="--native" not in sys.argv)
