"""Trains on the CPU with prefetched batches, a window of kept tensors, recomputed blocks, and, if asked for, a leak.

Each kind of block has a size of its own. kept_training.py ITERATIONS [recompute] [reentrant] [leak] [plain]
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import stalloc

ROWS, WIDTH, HIDDEN, VOCABULARY, BLOCKS = 333, 64, 257, 50, 3
KEPT, LEAKED = 100_000, 70_000  # bytes
options = set(sys.argv[2:])
torch.manual_seed(0)


class Doubled(torch.autograd.Function):
    """What autograd does not record: its output in a recomputation is told by its surroundings."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(Doubled.apply(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant="reentrant" in options) if "recompute" in options else block(x)
        return self.head(x)


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:  # of equal sizes: 8 bytes an element
        yield torch.randint(0, VOCABULARY, (ROWS,)), torch.randint(0, VOCABULARY, (ROWS,))


def leak() -> torch.Tensor:
    return torch.zeros(LEAKED, dtype=torch.uint8)


model, loss_of = Net(), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters())
kept: deque[torch.Tensor] = deque(maxlen=3)
leaked = []
data = batches()
ahead = deque(next(data) for _ in range(2))
for number in range(int(sys.argv[1])):
    tokens, labels = ahead.popleft()
    if "plain" not in options:
        stalloc.iteration(number)
        stalloc.microbatch("F")
    loss = loss_of(model(tokens), labels)
    if "plain" not in options:
        stalloc.microbatch("B")
    loss.backward()
    if "plain" not in options:
        stalloc.optimizer()
    optimizer.step()
    optimizer.zero_grad()
    ahead.append(next(data))
    kept.append(torch.zeros(KEPT, dtype=torch.uint8))
    if "leak" in options:
        leaked.append(leak())
