"""A process that holds tensors on the device, and gives them away in several ways. Obeys lines (parts.py).

    holder.py DEVICE BYTES {stalloc,memory_saver,to_cpu}

Half of the bytes are parameters, the rest an optimizer's state, in tensors of up to 256 MiB and some small ones.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import torch
from parts import bandwidth, memory, obey, synchronize, timed

device, size, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]

if how == "stalloc":
    import stalloc
elif how == "memory_saver":
    from torch_memory_saver import torch_memory_saver

    torch_memory_saver.hook_mode = "torch"


class Tensors(torch.nn.Module):
    def __init__(self, total: int) -> None:
        super().__init__()
        sizes = [4 << 10] * 64
        total -= sum(sizes)
        while total > 0:
            sizes.append(min(total, 256 << 20))
            total -= sizes[-1]
        rows = [torch.full((n // 4,), float(i + 1), device=device) for i, n in enumerate(sizes)]
        half = len(rows) // 2
        self.parameters_ = torch.nn.ParameterList([torch.nn.Parameter(row) for row in rows[:half]])
        self.state = rows[half:]

    def all(self) -> list[torch.Tensor]:
        return [*self.parameters_, *self.state]

    def is_whole(self) -> bool:
        return all(bool((row == float(i + 1)).all()) for i, row in enumerate(self.all()))


def region() -> Any:
    if how == "memory_saver":
        return torch_memory_saver.region(enable_cpu_backup=True)
    return contextlib.nullcontext()


with region():
    tensors = Tensors(size)


def iterate(count: int) -> dict[str, Any]:
    for i in range(count):
        if how == "stalloc":
            stalloc.iteration(i)
        for _ in range(4):
            torch.ones((1 << 20,), device=device).square_()
    synchronize(device)
    return {}


def copies(size: int) -> dict[str, Any]:
    return bandwidth(device, size)


def give() -> dict[str, Any]:
    begin = time.perf_counter()
    if how == "stalloc":
        result = stalloc.sleep()
        return {"seconds": time.perf_counter() - begin, **result.to_dict(), "memory": memory(device)}
    if how == "memory_saver":
        synchronize(device)
        torch_memory_saver.pause()
    else:
        tensors.to("cpu")
        tensors.state = [row.to("cpu") for row in tensors.state]
        if device != "cpu":
            torch.cuda.empty_cache()
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, "memory": memory(device)}


def take() -> dict[str, Any]:
    """`seconds` until all is there; `host_seconds`: until the program may go on."""
    synchronize(device)
    begin = time.perf_counter()
    result: dict[str, Any] = {}
    if how == "stalloc":
        result = stalloc.wake().to_dict()
    elif how == "memory_saver":
        torch_memory_saver.resume()
    else:
        tensors.to(device)
        tensors.state = [row.to(device) for row in tensors.state]
    host_seconds = time.perf_counter() - begin
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, "host_seconds": host_seconds, **result}


def check() -> dict[str, Any]:
    return {"whole": tensors.is_whole(), "seconds": timed(device, lambda: None)}


obey({"iterate": iterate, "copies": copies, "give": give, "take": take, "check": check}, {"memory": memory(device)})
