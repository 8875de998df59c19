"""A small training loop that asks for its device as programs do, for fake traces; each flag is one thing that programs
do and fake tensors cannot follow."""

from __future__ import annotations

import argparse
import json

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--branch", action="store_true", help="on the value of a tensor")
    parser.add_argument("--mask", action="store_true", help="take the rows that a mask says")
    parser.add_argument("--autocast", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(
        torch.nn.Linear(64, arguments.hidden), torch.nn.GELU(), torch.nn.Linear(arguments.hidden, 64)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(arguments.iterations):
        length = int(torch.randint(31, 32, (1,), generator=generator))  # data stays real
        batch = torch.randn(length, 64, generator=generator).to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=arguments.autocast):
            output = model(batch)
        if arguments.mask:
            output = output[torch.nonzero(output[:, 0] > 0)[:, 0]]
        loss = output.square().mean()
        optimizer.zero_grad()
        loss.backward()
        if arguments.branch and loss > 1e6:
            break
        optimizer.step()
    print(json.dumps({"device": str(next(model.parameters()).device), "loss": loss.item()}))


if __name__ == "__main__":
    main()
