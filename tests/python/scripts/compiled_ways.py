"""Trains a small model that is compiled in one of several ways, and counts what the backend compiled.

Prints a JSON object: the graphs' nodes, graph breaks, losses, and bytes of stalloc's arena after the second iteration.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch._dynamo.utils import counters

import stalloc

STEPS = 12
WIDTH = 256
graphs: list[int] = []


def backend(graph: Any, _: Any) -> Any:
    graphs.append(len(graph.graph.nodes))
    return graph.forward


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with stalloc.layer("block"):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))


way = sys.argv[1]
torch.manual_seed(0)
model: Any = torch.nn.Sequential(*(Block() for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
whole = {"backend": backend, "fullgraph": True}


def loss_of(x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def step(x: torch.Tensor) -> torch.Tensor:
    loss = loss_of(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def evaluate() -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(64, WIDTH))
    model.train()


if way in ("in place", "reset", "evaluated first"):
    if way == "reset":
        torch._dynamo.reset()  # Dynamo forgets who asked for its callbacks
    model.compile(**whole)
elif way in ("wrapped", "wrapped, evaluated first", "compiled autograd"):
    model = torch.compile(model, **whole)
elif way == "blocks":
    for block in model:
        block.compile(**whole)
elif way == "function":
    loss_of = torch.compile(loss_of, **whole)
elif way == "step":
    step = torch.compile(step, backend=backend)  # torch breaks the graph where the backward pass begins
elif way == "a teacher first":
    teacher = torch.compile(Block(), **whole)
elif way == "marked":
    from stalloc.frameworks.loop import mark_model

    model = torch.compile(mark_model(model), **whole)

if way.endswith("evaluated first"):
    evaluate()
losses = []
arena = 0
for index in range(STEPS):
    torch.manual_seed(index)
    batch = torch.randn(64, WIDTH)
    if way == "a teacher first":
        with torch.no_grad():
            batch = teacher(batch)
    if way == "compiled autograd":
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
            losses.append(step(batch).item())
    else:
        losses.append(step(batch).item())
    if index == 1 and stalloc.stats()["devices"]:
        arena = stalloc.stats()["devices"][0]["arena_bytes"]
print(
    json.dumps(
        {"graphs": graphs, "breaks": sum(counters["graph_break"].values()), "losses": losses, "arena_bytes": arena}
    )
)
