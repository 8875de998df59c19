"""side_stream_training.py STEPS [--install] [--varying]: trains with a side stream, for batches and norms.

Prints losses. --varying: every batch has a size of its own, so that a plan knows some of the requests only.

Everything that passes between the streams is ordered as torch asks for it, so torch's CUDA sanitizer has nothing to
report, and the losses do not depend on the allocator.
"""

from __future__ import annotations

import sys

import adapter
import torch
from torch import nn

WIDTH = 512


def main() -> None:
    steps, installs = int(sys.argv[1]), "--install" in sys.argv[2:]
    if installs:
        adapter.install("cuda")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(3)
    side = torch.cuda.Stream()
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        if installs:
            adapter.begin_iteration(step)
        rows = 96 + 32 * (5 * step % 7) if "--varying" in sys.argv else 256
        host = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(step)).pin_memory()
        with torch.cuda.stream(side):
            batch = host.to("cuda", non_blocking=True)
            scaled = batch * 0.5
        torch.cuda.current_stream().wait_stream(side)
        for tensor in (batch, scaled):
            tensor.record_stream(torch.cuda.current_stream())
        loss = (model(scaled) - batch).square().mean()
        del batch, scaled
        loss.backward()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            norms = [parameter.grad.square().sum() for parameter in model.parameters() if parameter.grad is not None]
            norm = torch.stack(norms).sum()
        torch.cuda.current_stream().wait_stream(side)
        norm.record_stream(torch.cuda.current_stream())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append((loss.item().hex(), norm.item().hex()))
        del loss, norm, norms
        if installs:
            adapter.end_iteration(step)
    adapter.show({"losses": losses, "stats": adapter.stats() if installs else None})


if __name__ == "__main__":
    main()
