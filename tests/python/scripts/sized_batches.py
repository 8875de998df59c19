"""Trains with so many rows: sized_batches.py KIND ROWS [ITERATIONS].

pairs     a loss over all pairs of rows
triples   a loss over all triples of rows
autocast  two micro-batches of ROWS in one autocast, as accumulation has it
apart     the same, each forward pass in an autocast of its own
layers    one micro-batch, recomputed layer by layer, in an autocast
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 128


def layers(count: int, width: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count)
    )


def of_pairs(model: nn.ModuleList, rows: int, kind: str) -> None:
    data = torch.randn(rows, 32)
    left, right = (functional.normalize(layer(data), dim=-1) for layer in model)
    scores = left @ right.T
    if kind == "triples":
        scores = (scores.unsqueeze(2) * scores.unsqueeze(1)).flatten(1)
    functional.cross_entropy(scores, torch.arange(rows)).backward()


@contextlib.contextmanager
def cast(wanted: bool) -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16) if wanted else contextlib.nullcontext():
        yield


def of_autocast(model: nn.ModuleList, rows: int, kind: str) -> None:
    with cast(kind == "autocast"):
        for _ in range(1 if kind == "layers" else 2):
            data = torch.randn(rows, WIDTH)
            with cast(kind != "autocast"):
                made = data
                for layer in model:
                    made = checkpoint(layer, made, use_reentrant=False) if kind == "layers" else layer(made)
            functional.mse_loss(made.float(), data).backward()


def main() -> None:
    kind, rows = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    of_scores = kind in ("pairs", "triples")
    model = layers(2, 32) if of_scores else layers(4, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 3):
        optimizer.zero_grad()
        (of_pairs if of_scores else of_autocast)(model, rows, kind)
        optimizer.step()


main()
