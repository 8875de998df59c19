"""A training loop with one habit that costs memory, or without it.

pattern_training.py HABIT [mended]
"""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn
from torch.nn import functional

HABIT, MENDED = sys.argv[1], "mended" in sys.argv[2:]
ROWS, WIDTH, CLASSES, ITERATIONS = 256, 128, 2048, 9


def model_of(width: int) -> nn.Sequential:
    layers = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def batch(rows: int = ROWS, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, width), torch.randint(0, CLASSES, (rows,))


def outputs(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Outputs stay in their variable through the backward pass."""
    for _ in range(ITERATIONS):
        x, y = batch(rows=2 * ROWS)
        optimizer.zero_grad()
        logits = model(x)
        loss = functional.cross_entropy(logits, y)
        if MENDED:
            del logits
        loss.backward()
        optimizer.step()


def gradients(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients stay from the step to the next backward pass."""
    for _ in range(ITERATIONS):
        x, y = batch(rows=64)
        loss = functional.cross_entropy(model(x), y)
        if not MENDED:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if MENDED:
            optimizer.zero_grad()


def evaluation(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """An evaluation keeps the graph of each forward pass, which has no backward pass."""
    for _ in range(ITERATIONS):
        x, y = batch(rows=64)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad() if MENDED else contextlib.nullcontext():
            x, y = batch(rows=4 * ROWS)
            functional.cross_entropy(model(x), y).item()


def losses(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Losses of a validation are kept with their graphs."""
    kept = []
    for _ in range(ITERATIONS):
        x, y = batch()
        loss = functional.cross_entropy(model(x), y)  # kept
        kept.append(loss.item() if MENDED else loss)
        x, y = batch(rows=64)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def gathered(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The best weights so far are copied on the device."""
    copy = torch.Tensor.cpu if MENDED else torch.clone
    for step in range(ITERATIONS):
        x, y = batch(rows=16)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % 2 == 1:
            state = {name: copy(value) for name, value in model.state_dict().items()}
            del state


def main() -> None:
    torch.manual_seed(1)
    model = model_of(WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    globals()[HABIT](model, optimizer)


main()
