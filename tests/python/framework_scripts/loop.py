"""A loop of one's own: two micro-batches a step, an evaluation in the middle. DDP where there are several ranks."""

import os

import torch
from outcome import Model, Tokens, leave
from torch.utils.data import DataLoader

from stalloc.frameworks.loop import mark_model

torch.manual_seed(1)
model = inner = Model()
if "WORLD_SIZE" in os.environ:
    torch.distributed.init_process_group("gloo")
    if os.environ["WRAP"] == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
mark_model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batches = iter(DataLoader(Tokens(), batch_size=2))
losses = []
for step in range(int(os.environ["STEPS"])):
    for _ in range(2):
        loss = model(**next(batches))
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        model.eval()
        with torch.no_grad():
            losses.append(model(**next(batches)).item())
        model.train()
leave(losses, inner)
if "WORLD_SIZE" in os.environ:
    torch.distributed.destroy_process_group()
