"""A plain loop on the CPU under `stalloc.auto`, whose adapter tells of a captured graph from one iteration on.

late_graphs.py DIRECTORY ITERATIONS CAPTURED_IN [WIDTH]
"""

import sys

import torch
from torch import nn

import stalloc
from stalloc.core.library import TorchLibrary

directory, iterations, captured_in = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
width = int(sys.argv[4]) if len(sys.argv) > 4 else 256
finished = 0


def graphs(_library):
    return {"followed": True, "pools": [{"captures": int(finished >= captured_in)}]}


TorchLibrary.graphs = graphs
stalloc.auto(directory)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, width))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(iterations):
    model(torch.randn(64, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    finished += 1
