"""Allocates tensors that are used at places which a test knows; the backward pass runs on a thread of its own."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

KIB = 1 << 10


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        IN_BACKWARD.append(torch.empty(700 * KIB, dtype=torch.uint8))  # 700 KiB, filled by the backward pass alone
        IN_BACKWARD[-1].fill_(3)
        return gradient * 2


def pass_the_time() -> None:
    for _ in range(60):
        torch.ones(1000)


IN_BACKWARD: list[torch.Tensor] = []
weight = torch.ones(1000, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(int(sys.argv[1])):
    early = torch.empty(1000 * KIB, dtype=torch.uint8)  # 1000 KiB, filled at the end
    late = torch.zeros(1100 * KIB, dtype=torch.uint8)  # 1100 KiB, filled here and never again
    idle = torch.zeros(1200 * KIB, dtype=torch.uint8)  # 1200 KiB, written again at the end
    seen = torch.zeros(1300 * KIB, dtype=torch.uint8)  # 1300 KiB, looked at (its shape), not read
    unused = torch.empty(1400 * KIB, dtype=torch.uint8)  # 1400 KiB, without any use
    pass_the_time()
    loss = Doubling.apply(weight).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    early.fill_(1)
    idle.add_(1)
    seen.view(-1, 2).t()
    torch.empty_like(seen)
    optimizer.step()
    del early, idle  # few events behind their last uses: not late
    optimizer.zero_grad(set_to_none=True)
    IN_BACKWARD.clear()
    del late, seen, unused
