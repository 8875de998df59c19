"""Cases of test_sleep_cuda.py: sleep_cases.py CASE; what outlives a sleep on a GPU. Prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import stalloc

MIB = 1 << 20
_OCCUPANT = """
import sys, torch
held = [torch.full((1 << 28,), 7, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]) >> 28)]
print(int(sum(int(tensor[-1]) for tensor in held)))
"""


def used() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def occupy(size: int) -> bool:
    """Another process has so many bytes of the device, and writes them."""
    names = ("STALLOC_MODE", "STALLOC_LIB_PATH")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    words = [sys.executable, "-c", _OCCUPANT, str(size)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return done.returncode == 0


def weights(count: int, size: int = 64 * MIB) -> list[torch.Tensor]:
    return [torch.full((size // 4,), float(i + 1), device="cuda") for i in range(count)]


def are_whole(tensors: list[torch.Tensor]) -> bool:
    return all(bool((tensor == float(i + 1)).all()) for i, tensor in enumerate(tensors))


def memory() -> dict[str, Any]:
    """The device has the bytes back, and another process can have them. Most of the device is the sleeper's."""
    free, _ = torch.cuda.mem_get_info()
    size = free // 10 * 7
    kept = weights(size // (256 * MIB), 256 * MIB)
    addresses = [tensor.data_ptr() for tensor in kept]
    before = used()
    refused = not occupy(free // 2)
    results = []
    for _ in range(2):
        slept = stalloc.sleep()
        asleep = used()
        had = occupy(free // 2)
        woken = stalloc.wake()
        results.append([asleep, had, are_whole(kept), slept.copied_bytes, woken.copied_bytes])
    return {
        "before": before,
        "size": sum(tensor.nbytes for tensor in kept),
        "refused_awake": refused,
        "rounds": results,
        "same_addresses": [tensor.data_ptr() for tensor in kept] == addresses,
    }


def graphs() -> dict[str, Any]:
    """A graph that was captured before reads and writes tensors that slept."""
    kept = weights(4)
    sums = torch.zeros(4, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            for i, tensor in enumerate(kept):
                sums[i] = tensor.sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i, tensor in enumerate(kept):
            tensor.add_(1.0)
            sums[i] = tensor.sum()
    results = []
    for turn in range(3):
        slept = stalloc.sleep()
        stalloc.wake()
        graph.replay()  # at once: it runs behind the copies
        count = kept[0].numel()
        expected = [float((i + 2 + turn) * count) for i in range(4)]
        results.append([sums.tolist() == expected, [row.what for row in slept.stays()]])
    return {"rounds": results}


def streams() -> dict[str, Any]:
    """Streams that never asked for memory read what slept right after the wake, and find it."""
    kept = weights(16)
    readers = [torch.cuda.Stream() for _ in range(4)]
    wrong = 0
    with stalloc.outside():
        counts = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in kept]
        masks = [torch.empty(kept[0].numel(), dtype=torch.bool, device="cuda") for _ in readers]
    torch.cuda.synchronize()
    for _ in range(10):
        stalloc.sleep()
        stalloc.wake()
        for i in reversed(range(len(kept))):
            reader = readers[i % len(readers)]
            with torch.cuda.stream(reader):
                torch.ne(kept[i], float(i + 1), out=masks[i % len(readers)])
                torch.sum(masks[i % len(readers)], dtype=torch.int64, dim=0, out=counts[i])
        torch.cuda.synchronize()
        wrong += sum(int(count.item()) for count in counts)
    return {"wrong": wrong}


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1024,), float(index))


def workers() -> dict[str, Any]:
    """Loader workers and their pinned batches live on while the device's memory is away."""
    loader = iter(DataLoader(Rows(), batch_size=4, num_workers=2, pin_memory=True))
    kept = weights(4)
    seen = [float(next(loader).cuda(non_blocking=True).sum().item())]
    for batch in loader:
        stalloc.sleep()
        stalloc.wake()
        seen.append(float(batch.cuda(non_blocking=True).sum().item()))
    return {"total": sum(seen), "expected": 1024.0 * sum(range(64)), "whole": are_whole(kept)}


def reduce() -> dict[str, Any]:
    """NCCL's all-reduce on tensors of the arena, on two GPUs, before and after a sleep. One process of two."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    tensor = torch.full((16 * MIB,), float(rank + 1), device="cuda")
    results = []
    for _ in range(3):
        torch.distributed.all_reduce(tensor)
        results.append(float(tensor[-1].item()))
        torch.cuda.synchronize()
        torch.distributed.barrier()
        stalloc.sleep(device=rank)
        stalloc.wake(device=rank)
    torch.distributed.destroy_process_group()
    return {"results": results}


def orders() -> dict[str, Any]:
    """Orders of another process, between iterations and in the last one. Lines tell the test how far it is."""
    kept = weights(4)
    path = stalloc.serve_sleep()
    print(path, flush=True)
    whole = []
    step = 0
    while not os.path.exists(sys.argv[2]):
        stalloc.iteration(step)
        whole.append(are_whole(kept))
        step += 1
        time.sleep(0.01)
    stalloc.iteration(step)
    print("last", flush=True)
    sys.stdin.readline()
    return {"whole": all(whole), "iterations": step}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
