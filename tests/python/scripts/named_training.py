"""Trains a small model on the CPU and writes what its blocks should be called, with their classes and sizes, as JSON.

Sizes are of storages; tensors that share one (tied, flattened) share a row.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

kind, output, iterations = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)


class Half(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 256)
        self.norm = torch.nn.BatchNorm1d(256)
        self.down = torch.nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(torch.relu(self.up(x))))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Half(), Half()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


model: Any = Net()
if kind == "flat":  # as Megatron's param_and_grad_buffer: one block of parameters, one of gradients
    count = sum(p.numel() for p in model.parameters())
    flat, gradients, at = torch.empty(count), torch.zeros(count), 0
    for parameter in model.parameters():
        inside = flat[at : at + parameter.numel()].view_as(parameter)
        inside.copy_(parameter.data)
        parameter.data = inside
        parameter.main_grad = gradients[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
if kind == "main":  # as mixed precision: the optimizer has copies of its own
    mains = []
    for parameter in model.parameters():
        parameter.main_param = parameter.detach().clone().requires_grad_()
        mains.append(parameter.main_param)
    optimizer = torch.optim.AdamW(mains)
else:
    optimizer = torch.optim.AdamW(model.parameters())


def size(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def expected() -> list[list[Any]]:
    rows = []
    for name, parameter in model.named_parameters():
        rows.append(["parameter", f"Net.{name}", size(parameter)])
        gradient = parameter.main_grad if kind == "flat" else parameter.grad
        rows.append(["gradient", f"Net.{name}", size(gradient)])
        held, suffix = (parameter.main_param, ":main") if kind == "main" else (parameter, "")
        if kind == "main":
            rows.append(["optimizer state", f"Net.{name}:main", size(held)])
            rows.append(["gradient", f"Net.{name}:main", size(held.grad)])
        for key in ("exp_avg", "exp_avg_sq"):
            rows.append(["optimizer state", f"Net.{name}{suffix}:{key}", size(optimizer.state[held][key])])
    rows += [["buffer", f"Net.{name}", size(buffer)] for name, buffer in model.named_buffers()]
    return rows


rows: list[list[Any]] = []
for _ in range(iterations):
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    for parameter in model.parameters():
        if kind == "flat":
            parameter.main_grad.copy_(parameter.grad)
        elif kind == "main":
            parameter.main_param.grad = parameter.grad.clone()
    optimizer.step()
    rows = expected()
    if kind == "main":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.main_param)
    model.zero_grad()
    optimizer.zero_grad()
    del loss
output.write_text(json.dumps(rows))
