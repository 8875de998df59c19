"""NCCL's collectives inside CUDA graphs, on tensors made in the capture: every result is checked.

    torchrun --nproc_per_node 2 bench/graphs/captured_collectives.py

All-reduce, all-gather, reduce-scatter and all-to-all of the sizes of `--mib`; eager tensors come and go between the
launches. The graph is deleted before the communicator, unless `--keep-graph`. Prints one JSON line a rank: results that
were wrong and how many there were, by collective; seconds of the communicator's end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--mib", type=int, nargs="+", default=[8, 64, 200], help="of the tensors")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--replays", type=int, default=50, help="of each step")
parser.add_argument("--keep-graph", action="store_true", help="destroy the process group while the graph is there")
options = parser.parse_args()

Collective = Callable[[torch.Tensor], torch.Tensor]


def collectives(world: int) -> dict[str, Collective]:
    def all_reduce(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x

    def all_gather(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty(world * len(x), device=x.device)
        dist.all_gather_into_tensor(result, x)
        return result

    def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty(len(x) // world, device=x.device)
        dist.reduce_scatter_tensor(result, x)
        return result

    def all_to_all(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(x)
        dist.all_to_all_single(result, x)
        return result

    return {each.__name__: each for each in (all_reduce, all_gather, reduce_scatter, all_to_all)}


def expected(name: str, of: list[float], length: int, device: torch.device) -> torch.Tensor:
    """What a rank gets where rank q has tensors of `of[q]` everywhere; `length`: of its own tensor."""
    if name == "all_reduce":
        return torch.full((length,), sum(of), device=device)
    if name == "reduce_scatter":
        return torch.full((length // len(of),), sum(of), device=device)
    part = length if name == "all_gather" else length // len(of)
    return torch.cat([torch.full((part,), value, device=device) for value in of])


class Captured:
    """Each collective on two tensors of each size: a copy of what the program fills, and its double."""

    def __init__(self, device: torch.device, world: int) -> None:
        self.lengths = [mib * 2**20 // 4 for mib in options.mib]
        self.sources = [torch.zeros(length, device=device) for length in self.lengths]
        self.results: list[tuple[str, int, int, torch.Tensor]] = []
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            for name, collective in collectives(world).items():
                for number, source in enumerate(self.sources):
                    for factor in (1, 2):
                        temporary = source * factor
                        self.results.append((name, number, factor, collective(temporary)))
                        del temporary

    def replay(self, values: list[float], rank: int) -> None:
        for number, source in enumerate(self.sources):
            source.fill_(values[rank] + number)
        self.graph.replay()

    def count_wrong(self, values: list[float], counts: dict[str, list[int]]) -> None:
        """Adds to the wrong results of each collective, and to how many there were."""
        for name, number, factor, result in self.results:
            right = expected(name, [factor * (v + number) for v in values], self.lengths[number], result.device)
            count = counts.setdefault(name, [0, 0])
            count[0] += int(not torch.equal(result, right))
            count[1] += 1


def main() -> None:
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    model = nn.Linear(4096, 4096, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for collective in collectives(world).values():
        collective(torch.ones(1024, device=device))
    captured: Captured | None = None
    totals: dict[str, list[int]] = {}
    for step in range(options.steps):
        model(torch.randn(512, 4096, device=device)).square().mean().backward()
        if step == 2:
            captured = Captured(device, world)
        for replay in range(options.replays if captured is not None else 0):
            values = [float((q + 1) * (1 + replay % 7)) for q in range(world)]
            captured.replay(values, rank)
            eager = [torch.full((2**20 * (3 + replay % 5 + j),), -1.0, device=device) for j in range(4)]
            captured.count_wrong(values, totals)
            del eager
        optimizer.step()
        optimizer.zero_grad()
    line = {"rank": rank, "wrong_of": totals, "peak_reserved_bytes": torch.cuda.max_memory_reserved()}
    print(json.dumps(line), flush=True)
    if not options.keep_graph:
        captured = None
        torch.cuda.synchronize()
    begin = time.perf_counter()
    dist.destroy_process_group()
    print(json.dumps({"rank": rank, "seconds_of_the_end": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
