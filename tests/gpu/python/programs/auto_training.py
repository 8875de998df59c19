"""Trains a small model in a plain loop beside what programs do to an allocator: a side stream, a MemPool, a captured
graph, emptied caches, snapshots. Prints, as JSON, what it computed, to the last bit, and what a snapshot missed."""

from __future__ import annotations

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import hashlib
import json

import torch
from torch import nn

import stalloc  # noqa: F401

WIDTH, ROWS, ITERATIONS = 1024, 512, 14
CAPTURE_AT, EMPTY_AT = 2, (3, 10)  # before the plan is there, and behind it


class Captured:
    """A graph that doubles its input."""

    def __init__(self) -> None:
        self.input = torch.zeros(ROWS, WIDTH, device="cuda")
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.input * 2 + 1

    def run(self, values: torch.Tensor) -> float:
        self.input.copy_(values)
        self.graph.replay()
        return float(self.output.sum().item())


def snapshot_differs() -> bool:
    """Segments and statistics tell of other bytes."""
    stats, segments = torch.cuda.memory_stats(), torch.cuda.memory_snapshot()
    held = sum(segment["total_size"] for segment in segments)
    allocated = sum(segment["allocated_size"] for segment in segments)
    return held != stats["reserved_bytes.all.current"] or allocated != stats["allocated_bytes.all.current"]


def main() -> None:
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(6)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    side, pool = torch.cuda.Stream(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        counter = torch.zeros(1 << 20, device="cuda")
    losses, sums, differing = [], [], 0
    captured = None
    for iteration in range(ITERATIONS):
        with torch.cuda.stream(side):
            batch = torch.randn(ROWS, WIDTH).cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        counter += 1
        if iteration == CAPTURE_AT:
            captured = Captured()
        if captured is not None:
            sums.append(captured.run(batch).hex())
        if iteration in EMPTY_AT:
            torch.cuda.empty_cache()
        differing += snapshot_differs()
    weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    computed = {"losses": losses, "sums": sums, "counter": counter.sum().item(), "weights": weights}
    print(json.dumps({**computed, "snapshots_that_differ": differing}))


if __name__ == "__main__":
    main()
