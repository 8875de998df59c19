"""Trains eight layers and a head, with the modules of a choice offloaded: offloaded_training.py ITERATIONS [fit.json].

The CPU stands for the device, so its tensors leave; the pool is numpy's memory, which no trace has.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy
import torch

import stalloc
from stalloc.train.changes import host_pool, offload

ROWS, WIDTH, TOKENS = 512, 64, 1000


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.Tanh(), torch.nn.Linear(256, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(8))
        self.head = torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x).logsumexp(-1).mean()


def main() -> None:
    offload._STAY = set()
    memory = {"empty": lambda count, **_: torch.from_numpy(numpy.empty(count, numpy.uint8)), "uint8": torch.uint8}
    host_pool.torch = SimpleNamespace(**memory)  # type: ignore[assignment]
    torch.manual_seed(1)
    model = Network()
    if len(sys.argv) > 2:
        stalloc.apply(sys.argv[2], model)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.rand(ROWS, WIDTH)
    loss = torch.zeros(())
    for _ in range(int(sys.argv[1])):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
