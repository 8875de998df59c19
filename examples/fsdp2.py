"""FSDP2 on two ranks, each traced, planned and served for itself.

torchrun --nproc-per-node 2 --no-python stalloc run --auto --dir run1 examples/fsdp2.py
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

import stalloc.frameworks.loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group(backend="nccl" if on_gpu else "gloo")
    torch.manual_seed(1)
    width = options.width
    blocks = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(options.layers)
    ]
    model = nn.Sequential(*blocks).to(device)
    mesh = distributed.init_device_mesh(device.type, (distributed.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    stalloc.frameworks.loop.mark_model(model)  # forward and backward passes; iterations are found without
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        data = torch.randn(256, width, device=device)
        loss = nn.functional.mse_loss(model(data), data.tanh())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 0 and distributed.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
