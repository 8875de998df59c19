"""Cases of test_cpu_behaviour.py: what programs do with CPU tensors besides training. behaviour.py CASE"""

from __future__ import annotations

import atexit
import copy
import io
import os
import queue
import random
import sys
import threading
from typing import Any

import adapter
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20


class Rows(Dataset[torch.Tensor]):
    """Rows of one big tensor; reading one also writes to a tensor that the workers inherit."""

    def __init__(self) -> None:
        self.rows = torch.arange(64 * 1000, dtype=torch.float64).reshape(64, 1000)
        self.scratch = torch.zeros(1000, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.scratch += self.rows[index]
        return self.rows[index] * 2 + torch.ones(1000, dtype=torch.float64)


def dataloader() -> dict[str, Any]:
    rows = Rows()
    wrong = 0
    for _ in range(2):
        loader = DataLoader(rows, batch_size=8, num_workers=2, multiprocessing_context="fork")
        for number, batch in enumerate(loader):
            expected = rows.rows[number * 8 : number * 8 + 8] * 2 + 1
            wrong += int(not torch.equal(batch, expected))
    return {"wrong": wrong, "scratch": rows.scratch.sum().item(), "unknown_frees": adapter.stats()["unknown_frees"]}


def fork() -> dict[str, Any]:
    torch.set_num_threads(1)  # a forked child hangs in OpenMP, also under plain torch
    kept = torch.full((3 * MIB,), 7, dtype=torch.uint8)
    before = adapter.stats()["requests"]
    child = os.fork()
    if child == 0:
        ok = bool((kept == 7).all())
        kept.fill_(9)
        blocks = [torch.full((size,), 3, dtype=torch.uint8) for size in range(1, 200_000, 1111)]
        ok = ok and all(int(block.sum()) == 3 * len(block) for block in blocks)
        del blocks, kept
        sys.exit(0 if ok else 1)  # orderly: exit handlers run in the child too
    _, status = os.waitpid(child, 0)
    after = adapter.stats()["requests"]
    more = torch.ones(MIB)
    return {
        "child": os.waitstatus_to_exitcode(status),
        "kept": bool((kept == 7).all()),
        "requests_of_child_in_parent": after - before,
        "more": more.sum().item(),
        "pid": os.getpid(),
    }


def threads() -> dict[str, Any]:
    """Blocks are filled in one thread, checked and freed in another."""
    wrong: list[int] = []
    handed: queue.Queue[tuple[int, torch.Tensor] | None] = queue.Queue(maxsize=64)

    def produce(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(400):
            value = source.randrange(256)
            handed.put((value, torch.full((source.choice([1, 100, 5000, 3 * MIB // 8]),), value, dtype=torch.uint8)))

    def consume() -> None:
        while (item := handed.get()) is not None:
            value, block = item
            if not bool((block == value).all()):
                wrong.append(value)

    producers = [threading.Thread(target=produce, args=(seed,)) for seed in range(3)]
    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    for _ in consumers:
        handed.put(None)
    for thread in consumers:
        thread.join()
    return {"wrong": wrong, "unknown_frees": adapter.stats()["unknown_frees"]}


def numpy_interop() -> dict[str, Any]:
    array = np.arange(100_000, dtype=np.float32)
    borrowed = torch.from_numpy(array)
    borrowed.mul_(2)
    tensor = torch.arange(50_000, dtype=torch.float64)
    view = tensor.numpy()
    tensor.add_(1)
    del tensor  # the array keeps the memory
    filler = [torch.full((50_000,), -1.0, dtype=torch.float64) for _ in range(4)]
    copied = torch.tensor(view)
    del filler, borrowed
    return {
        "array": float(array.sum()),
        "view": float(view.sum()),
        "copied": copied.sum().item(),
        "address": view.ctypes.data % 64,
    }


def storages() -> dict[str, Any]:
    grown = torch.arange(10, dtype=torch.int64)
    grown.resize_(100_000)
    grown[10:] = 1
    other = torch.empty(0, dtype=torch.int64).set_(grown.untyped_storage(), 5, (5,))
    del grown
    storage = torch.UntypedStorage(1000)
    storage.fill_(3)
    storage.resize_(5000)
    shared = torch.arange(1000).share_memory_()
    lazy = torch._lazy_clone(other)
    lazy += 1
    return {
        "other": other.tolist(),
        "lazy": lazy.tolist(),
        "storage": int(torch.tensor(storage.tolist()[:1000]).sum()),
        "shared": int(shared.sum()),
        "empty": [torch.empty(0).data_ptr(), torch.zeros(0, 5).sum().item()],
        "unknown_frees": adapter.stats()["unknown_frees"],
    }


def pickling() -> dict[str, Any]:
    model = torch.nn.Linear(300, 300)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    copied = copy.deepcopy(model)
    return {
        "loaded": all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items()),
        "copied": torch.equal(copied.weight, model.weight) and copied.weight.data_ptr() != model.weight.data_ptr(),
    }


def profiler() -> dict[str, Any]:
    """Memory that torch.profiler saw appear and vanish in one function."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        block = torch.empty(3 * MIB, dtype=torch.uint8)
        del block
    events = [event for event in profile.events() if event.cpu_memory_usage != 0]
    return {"sizes": sorted(event.cpu_memory_usage for event in events)}


def cap() -> dict[str, Any]:
    """128 MiB as 2 MiB blocks, every other one freed, then one of 64 MiB: live bytes fit, no hole does."""
    blocks = [torch.full((2 * MIB,), number, dtype=torch.uint8) for number in range(64)]
    del blocks[::2]
    large = torch.full((64 * MIB,), 200, dtype=torch.uint8)
    intact = all(bool((block == 2 * number + 1).all()) for number, block in enumerate(blocks))
    try:
        torch.empty(200 * MIB, dtype=torch.uint8)
        error = ""
    except RuntimeError as raised:
        error = str(raised)
    again = torch.full((16 * MIB,), 5, dtype=torch.uint8)
    return {"intact": intact, "large": [int(large.min()), int(large.max())], "error": error, "again": int(again[-1])}


def exceptions() -> dict[str, Any]:
    """Failing operations in the middle of autograd leave nothing behind."""
    weight = torch.randn(500, 500, requires_grad=True)
    before = adapter.stats()["live_bytes"]
    failures = 0
    for step in range(20):
        try:
            y = (weight @ weight).exp()
            if step % 2:
                y @ torch.ones(3)
            y.register_hook(lambda _: 1 / 0)
            y.sum().backward()
        except (RuntimeError, ZeroDivisionError):
            failures += 1
    del y
    weight.grad = None
    return {"failures": failures, "left": adapter.stats()["live_bytes"] - before}


class Late:
    """Frees and allocates while the interpreter goes down."""

    def __init__(self) -> None:
        self.block = torch.ones(MIB)

    def __del__(self) -> None:
        del self.block


KEPT: list[Any] = []


def exit_with_live_tensors() -> dict[str, Any]:
    KEPT.append(torch.ones(MIB))
    KEPT.append(Late())
    KEPT.append(torch.nn.Linear(100, 100))
    KEPT.append(KEPT)  # a cycle: freed late or never
    atexit.register(lambda: KEPT[0].add_(torch.ones(MIB)))

    def wait_forever(block: torch.Tensor) -> None:
        threading.Event().wait()
        del block

    threading.Thread(target=wait_forever, args=(torch.ones(MIB),), daemon=True).start()
    return {"sum": KEPT[0].sum().item()}


CASES = (
    dataloader,
    fork,
    threads,
    numpy_interop,
    storages,
    pickling,
    profiler,
    cap,
    exceptions,
    exit_with_live_tensors,
)


def main() -> None:
    adapter.install("cpu")
    case = next(case for case in CASES if case.__name__ == sys.argv[1])
    adapter.show(case())


if __name__ == "__main__":
    main()
