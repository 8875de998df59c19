"""What every script leaves: losses and a digest of the weights, to the last bit, and stalloc's figures.

$DEVICE says where it trains: cpu (the default) or cuda.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")
if DEVICE == "cuda":  # kernels whose sums have one order
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Row i is the same in every process."""

    def __init__(self, rows: int = 64) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 96, (48,), generator=torch.Generator().manual_seed(row))
        return {"input_ids": tokens, "labels": tokens}


class Model(nn.Module):
    """A transformer of two blocks; forward gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 64)
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True) for _ in range(2)))
        self.head = nn.Linear(64, 96)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.blocks(self.embedding(input_ids)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def leave(losses: list[float], module: nn.Module) -> None:
    """Writes $OUTCOME, with this rank's number if there are several."""
    import stalloc

    digest = hashlib.sha256()
    for parameter in module.parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # FSDP2's shard
        digest.update(local.detach().float().cpu().numpy().tobytes())
    result: dict[str, Any] = {
        "losses": [float(loss).hex() for loss in losses],
        "weights": digest.hexdigest(),
        "figures": stalloc.stats(),
    }
    Path(os.environ["OUTCOME"] + os.environ.get("RANK", "")).write_text(json.dumps(result))
