"""Allocates at places that a test knows, in the loop and in a backward pass; prints the time of a request in ns."""

from __future__ import annotations

import time
from typing import Any

import torch

KEPT = []


def keep_a_block() -> None:
    KEPT.append(torch.empty(300_000, dtype=torch.uint8))  # the place of 300 000 bytes


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        KEPT.append(torch.empty(500_000, dtype=torch.uint8))  # the place of 500 000 bytes
        return gradient * 2


def nested(depth: int) -> float:
    if depth > 0:
        return nested(depth - 1)
    begin = time.perf_counter_ns()
    for _ in range(2000):
        torch.empty(100)
    return (time.perf_counter_ns() - begin) / 2000


x = torch.ones(10, requires_grad=True)
for _ in range(3):
    keep_a_block()
    Doubling.apply(x).sum().backward()
print(min(nested(30) for _ in range(5)))
