"""One rank of a model that FSDP shards (or, with --replicated, DDP replicates), as a program for NCCL sets it up."""

from __future__ import annotations

import os
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

LAYERS, WIDTH = 6, 1024


def main() -> None:
    distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    if "--replicated" in sys.argv:
        torch.nn.parallel.DistributedDataParallel(model.cuda())
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(5):
        model(torch.randn(64, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
