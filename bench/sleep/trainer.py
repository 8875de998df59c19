"""A trainer that sleeps on order. Obeys lines (parts.py).

trainer.py DEVICE WIDTH LAYERS ROWS
"""

from __future__ import annotations

import sys
import time
from typing import Any

from parts import Training, memory, obey, synchronize

import stalloc

device, width, layers, rows = sys.argv[1], *map(int, sys.argv[2:])
training = Training(device, width, layers, rows)
losses: list[str] = []


def train(steps: int) -> dict[str, Any]:
    begin = time.perf_counter()
    for _ in range(steps):
        losses.append(training.step().hex())
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, "losses": losses[-steps:]}


def sleep() -> dict[str, Any]:
    begin = time.perf_counter()
    result = stalloc.sleep()
    return {"seconds": time.perf_counter() - begin, **result.to_dict(), "memory": memory(device)}


def wake() -> dict[str, Any]:
    """`seconds` until all is there."""
    begin = time.perf_counter()
    result = stalloc.wake()
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, **result.to_dict(), "memory": memory(device)}


def end() -> dict[str, Any]:
    return {"losses": losses, "digest": training.digest(), "memory": memory(device)}


obey({"train": train, "sleep": sleep, "wake": wake, "end": end})
