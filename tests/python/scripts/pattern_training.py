"""A training loop with one habit that costs memory, or without it.

pattern_training.py HABIT [mended]
"""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

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


def logits(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    """The loss is outside of the model, which is called in two parts; logits of all rows are there at once."""
    body, head = model[:-1], model[-1]

    def part(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(head(hidden).float(), labels, reduction="sum")

    for _ in range(ITERATIONS):
        x, y = batch(rows=2 * ROWS)
        optimizer.zero_grad()
        hidden = body(x)
        if MENDED:
            pieces = zip(hidden.flatten(0, -2).chunk(4), y.flatten().chunk(4))
            loss = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in pieces) / y.numel()
        else:
            loss = part(hidden, y) / y.numel()
        loss.backward()
        optimizer.step()


def first(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Batches become larger: what smaller ones left free is too small for them."""
    rows = [1500 + 250 * step for step in range(ITERATIONS)]
    for count in [rows[-1], *rows[:-1]] if MENDED else rows:
        x, y = batch(rows=count)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(1)
    model = model_of(WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    globals()[HABIT](model, optimizer)


main()
