"""A plain training loop: nothing in it knows of stalloc.

    stalloc run --auto examples/plain_loop.py

traces the first six iterations, plans while the run goes on, and serves the rest from the plan; a second start is
served from it from its first iteration on. In three steps instead: see README.md.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


def model(width: int, layers: int) -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)]
    return nn.Sequential(*blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = model(options.width, options.layers).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for step in range(options.steps):
        data = torch.randn(options.batch, options.width, device=device)
        loss = nn.functional.mse_loss(network(data), data.tanh())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
