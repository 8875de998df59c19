"""Models that `stalloc.apply` is tried on, and choices for them. Classes are here so that pickle finds them by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.debugging import aot_eager


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.runs = 0

    def forward(self, x: Any, *, scale: Any = 1.0) -> Any:
        self.count()
        return x + scale * self.drop(self.linear(x).relu())

    @torch.compiler.disable
    def count(self) -> None:
        self.runs += 1


class Model(torch.nn.Module):
    def __init__(self, kind: Callable[[], Any] = Layer, layers: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(kind() for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return x.sum()


class Quiet(Layer):
    """One that torch.compile can take whole."""

    def count(self) -> None:
        """Counts nothing."""


class Counting:
    """A backend of torch.compile: graphs that it was given, and calls of them that training makes."""

    def __init__(self) -> None:
        self.graphs = 0
        self.calls = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        compiled = aot_eager(graph, inputs)

        def called(*args: Any) -> Any:
            self.calls += 1
            return compiled(*args)

        return called


def write(path: Path, **chosen: Any) -> Path:
    every = {"recompute": [], "offload": [], "offload_state": False, "stores": False, **chosen}
    path.write_text(json.dumps({"version": 1, "chosen": every}))
    return path


def gradients(model: Any, *args: Any) -> list[Any]:
    torch.manual_seed(3)
    model.zero_grad()
    model(*(args or (torch.ones(4, 8),))).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def same(mine: list[Any], theirs: list[Any]) -> bool:
    return len(mine) == len(theirs) and all(torch.equal(one, other) for one, other in zip(mine, theirs))
