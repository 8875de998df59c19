"""Cases of test_cpu_oom.py: a loop of two tensors of 1.5 GiB, which nobody touches, beside others. oom.py CASE"""

from __future__ import annotations

import sys
from typing import Any

import adapter
import torch

GIB = 1 << 30
TENSOR = 3 * GIB // 2


def iterations(first: int, count: int, tensors_each: int = 2) -> None:
    for index in range(first, first + count):
        adapter.begin_iteration(index)
        tensors = [torch.empty(TENSOR, dtype=torch.uint8) for _ in range(tensors_each)]
        tensors[0][:100] = index
        assert int(tensors[0][:100].sum()) == 100 * index
        del tensors
        adapter.end_iteration(index)


def loop() -> dict[str, Any]:
    iterations(0, 4)
    return adapter.stats()


def half() -> dict[str, Any]:
    iterations(0, 4, tensors_each=1)
    return adapter.stats()


def idle() -> dict[str, Any]:
    """A request that fits only where the arena's idle chunks go back; then the plan's own requests again."""
    iterations(0, 3)
    large = torch.empty(7 * GIB // 2, dtype=torch.uint8)
    lent = adapter.stats()["devices"][0]["arena_lent_bytes"]
    del large
    iterations(3, 3)
    return {"lent": lent, **adapter.stats()}


def too_large() -> dict[str, Any]:
    iterations(0, 3)
    adapter.begin_iteration(3)
    first = torch.empty(TENSOR, dtype=torch.uint8)
    message = ""
    try:
        torch.empty(20 * GIB, dtype=torch.uint8)
    except RuntimeError as error:
        message = str(error)
    second = torch.empty(TENSOR, dtype=torch.uint8)
    first[:100] = 7
    second[:100] = 8
    intact = int(first[:100].sum()) == 700
    del first, second
    adapter.end_iteration(3)
    iterations(4, 2)
    return {"message": message, "intact": intact, **adapter.stats()}


def main() -> None:
    adapter.install("cpu")
    adapter.show(globals()[sys.argv[1]]())


if __name__ == "__main__":
    main()
