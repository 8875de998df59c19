"""torchrun_training.py {ddp,fsdp2} DIRECTORY: trains the benches' GPT over all ranks, as users do, from torchrun.

Uses a GPU a rank, or the CPU where there is none. Each rank leaves its losses, bit for bit, and stalloc's statistics
in DIRECTORY/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from workload import Gpt, WorkloadConfig, token_batches

import stalloc

STEPS = 8
RANK = int(os.environ["RANK"])


def distribute(kind: str, model: Gpt, device: torch.device) -> torch.nn.Module:
    if kind == "ddp":
        return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(11)
    config = WorkloadConfig(recompute="half")
    model = distribute(kind, Gpt(config, device), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = token_batches(config, 1000 + RANK, device)
    losses = []
    for index in range(STEPS):
        stalloc.iteration(index)
        total = torch.zeros((), device=device)
        for number in range(config.accumulation):
            with stalloc.microbatch("F", number):
                loss = model(next(batches)) / config.accumulation
            with stalloc.microbatch("B", number):
                loss.backward()
            total += loss.detach()
        stalloc.optimizer()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item().hex())
    if device.type == "cuda":
        torch.cuda.synchronize()
    dist.destroy_process_group()
    (directory / f"{RANK}.json").write_text(json.dumps({"losses": losses, "stats": stalloc.stats()}))


if __name__ == "__main__":
    main()
