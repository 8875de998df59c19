"""torch.distributed.pipelining: two stages over two ranks, 1F1B."""

import os

import torch
from outcome import leave
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(1 + rank)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
stage = PipelineStage(model, rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses: list[torch.Tensor] = []
for step in range(int(os.environ["STEPS"])):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(16, 64, generator=generator)
    if rank == 0:
        schedule.step(inputs)
    else:
        of_step: list[torch.Tensor] = []
        schedule.step(target=inputs.flip(1), losses=of_step)
        losses += of_step
    optimizer.step()
    optimizer.zero_grad()
leave([loss.item() for loss in losses], model)
torch.distributed.destroy_process_group()
