"""Trains a chain of blocks, for `stalloc run --fit`: fit_itself.py [ROWS] [STEPS]. Prints its losses as JSON.

WAY: plain (default), trainer (of fake_trainer), ddp, fsdp. WIDTH: of the blocks. DEVICE: cpu (default), or cuda, whose
peak of bytes it prints first. NOTE: a file that gets a line when the loop has ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from fit_itself_blocks import Net

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 12
WAY, WIDTH = os.environ.get("WAY", "plain"), int(os.environ.get("WIDTH", "64"))
DEVICE = os.environ.get("DEVICE", "cpu")


def loop(model: torch.nn.Module) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(STEPS):
        x, y = torch.randn(ROWS, WIDTH, device=DEVICE), torch.randint(0, 8, (ROWS,), device=DEVICE)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained() -> list[float]:
    model: torch.nn.Module = Net(WIDTH).to(DEVICE)
    if WAY == "trainer":
        import transformers

        arguments = transformers.TrainingArguments(per_device_train_batch_size=ROWS, max_steps=STEPS)
        rows = torch.randn(4096, WIDTH), torch.randint(0, 8, (4096,))
        return transformers.Trainer(model, arguments, rows).train()
    if WAY in ("ddp", "fsdp"):
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(1 + torch.distributed.get_rank())
        model = torch.nn.parallel.DistributedDataParallel(model) if WAY == "ddp" else sharded(model)
    return loop(model)


torch.manual_seed(0)
losses = trained()
if DEVICE == "cuda":
    print(torch.cuda.max_memory_allocated())
if os.environ.get("RANK", "0") == "0":
    print(json.dumps(losses))
if "NOTE" in os.environ:
    with Path(os.environ["NOTE"]).open("a") as file:
        file.write("ended\n")
