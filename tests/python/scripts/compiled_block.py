"""Compiles blocks of bench/worth's decoder with dynamic sizes; prints how many graphs they became, and their breaks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "worth"))
from models import Decoder, Shape
from torch._dynamo.utils import counters

model = Decoder(Shape(2, 64, 4, 4, 128, 500))
for block in model.blocks:
    block.forward = torch.compile(block.forward, dynamic=True, backend="aot_eager")
for length in (16, 24):
    tokens = torch.randint(0, 500, (1, length + 1))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
print(json.dumps({"graphs": counters["stats"]["unique_graphs"], "breaks": list(counters["graph_break"])}))
