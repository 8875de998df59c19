"""A model on the CPU whose activations are most of its memory: --rows R R ..., each of them for --steps iterations.

Prints one JSON line: a digest of losses and weights, and where stalloc is there what the last iteration of each size
came to. With --marks it marks its iterations itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, TABLE = 64, 16, 1 << 20


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(TABLE))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.gelu(layer(x))
        return x.square().mean() * self.table.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--marks", action="store_true")
    arguments = parser.parse_args()
    stalloc: Any = sys.modules.get("stalloc")
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    digest, figures = hashlib.sha256(), []
    for rows in arguments.rows:
        for _ in range(arguments.steps):
            if arguments.marks and stalloc is not None:
                stalloc.iteration()
            loss = model(torch.randn(rows, WIDTH))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            digest.update(str(loss.item()).encode())
        if stalloc is not None and stalloc.mode() in ("Alloc", "Auto"):
            figures.append(stalloc.stats()["last_iteration"])
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(json.dumps({"digest": digest.hexdigest(), "last_iterations": figures}))


if __name__ == "__main__":
    main()
