"""Trains a small model on the CPU, and asks for more than there is in a forward pass: caught, or at the program's end.

failing_training.py [catch]
"""

from __future__ import annotations

import sys

import torch

import stalloc

WIDTH, HIDDEN, ROWS = 64, 300, 333
FAILS_IN = 3  # iteration
TOO_MUCH = 1 << 50


def ask_for_too_much() -> torch.Tensor:
    return torch.empty(TOO_MUCH, dtype=torch.uint8)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).sin())


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for number in range(FAILS_IN + 2):
    stalloc.iteration(number)
    x = torch.randn(ROWS, WIDTH)
    stalloc.microbatch("F")
    y = model(x).square().mean()
    if number == FAILS_IN:
        try:
            ask_for_too_much()
        except RuntimeError:
            if "catch" not in sys.argv:
                raise
    stalloc.microbatch("B")
    y.backward()
    stalloc.optimizer()
    optimizer.step()
    optimizer.zero_grad()
    del y
