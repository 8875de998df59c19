"""A loop that is started again and again with other arguments: which of them change what it requests is told by tests.

Prints one JSON line: losses, a digest of the weights, steady requests and those served from slots, bytes held and live
at the end.
"""

import argparse
import hashlib
import json
import os
import random
from pathlib import Path

import torch
from torch import nn

import stalloc

WIDTH = 128

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--config", type=Path, help="a file with the batch in it")
parser.add_argument("--out", type=Path, help="where the checkpoint goes")
parser.add_argument("--resume", type=Path, help="a checkpoint")
parser.add_argument("--lengths", type=int, default=0, help="rows vary from step to step: a seed")
options = parser.parse_args()
batch = int(options.config.read_text()) if options.config else options.batch

device = "cuda" if os.environ.get("STALLOC_DEVICE") != "cpu" and torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
rows_of = random.Random(options.lengths)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block() for _ in range(6)), nn.Linear(WIDTH, 2048)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
if options.resume:
    state = torch.load(options.resume, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    del state
losses = []
for _ in range(options.steps):
    rows = rows_of.randrange(batch // 2, 2 * batch) if options.lengths else batch
    inputs, targets = torch.randn(rows, WIDTH).to(device), torch.randint(0, 2048, (rows,)).to(device)
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    del loss
if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "checkpoint.pt")
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
figures = {}
if stalloc.mode() == "Auto":
    stats = stalloc.stats()
    figures = {
        "requests": stats["steady"]["requests"],
        "hits": stats["steady"]["hits"],
        "held": stats["arena_bytes"] + stats["upstream_reserved_bytes"],
        "live": stats["live_bytes"],
    }
print(json.dumps({"losses": losses, "weights": digest.hexdigest()[:16], **figures}), flush=True)
