"""A trainer that sleeps on order. Obeys lines (parts.py).

trainer.py DEVICE WIDTH LAYERS ROWS
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from parts import Training, memory, obey, sleep, synchronize, wake

import stalloc  # noqa: F401  # before anything is on the device

device, width, layers, rows = sys.argv[1], *map(int, sys.argv[2:])
training = Training(device, width, layers, rows)
losses: list[str] = []


def train(steps: int) -> dict[str, Any]:
    begin = time.perf_counter()
    for _ in range(steps):
        losses.append(training.step().hex())
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, "losses": losses[-steps:]}


def end() -> dict[str, Any]:
    return {"losses": losses, "digest": training.digest(), "memory": memory(device)}


obey({"train": train, "sleep": partial(sleep, device), "wake": partial(wake, device), "end": end})
