"""A language model of graphed blocks that leaves its order of launches every so often: figures of captures and replays.

The blocks are graphed by make_graphed_callables; embedding, loss, optimizer and evaluations are eager. Every
`--odd-every`th iteration is another one: longer rows, which the blocks compute without their graphs, then forward
launches alone. With `--threads 2` a second thread captures a graph of its own, replays it all the time on its own
stream, and checks what comes out.
Prints one JSON line: losses, seconds of captures, of each step and of a replay (device and host), peaks in bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--odd-every", type=int, default=0, help="iterations; 0: none is odd")
parser.add_argument("--replays", type=int, default=200, help="of the first block's forward graph, timed")
parser.add_argument("--threads", type=int, default=1, choices=[1, 2])
options = parser.parse_args()

VOCABULARY = 32000
HEADS = max(1, options.width // 128)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = options.width
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        query, key, value = self.qkv(self.norms[0](x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Replayer(threading.Thread):
    """Replays a graph of its own, and counts results that are not what they are to be."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong, self.replays, self.over = 0, 0, threading.Event()
        self.x = torch.zeros(2**22, device="cuda", dtype=torch.float32)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = ((self.x + 1) * 2).sum()

    def run(self) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            while not self.over.is_set():
                value = float(self.replays % 5)
                self.x.fill_(value)
                temporary = torch.ones(2**20 * (1 + self.replays % 7), device="cuda")
                self.graph.replay()
                self.wrong += int(abs(float(self.result) / ((value + 1) * 2 * 2**22) - 1) > 1e-3)
                del temporary
                self.replays += 1


def timed_replays() -> dict[str, float]:
    """Of a graph of one block's forward, captured for this; seconds."""
    block, x = Block().requires_grad_(False), torch.randn(options.rows, options.length, options.width, device="cuda")
    graph, begin, end = torch.cuda.CUDAGraph(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    block(x.bfloat16())
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.cuda.graph(graph):
        result = block(x.bfloat16())
    capture = time.perf_counter() - start
    host = []
    begin.record()
    for _ in range(options.replays):
        start = time.perf_counter()
        graph.replay()
        host.append(time.perf_counter() - start)
    end.record()
    torch.cuda.synchronize()
    del result
    device = begin.elapsed_time(end) / 1e3 / options.replays
    return {"capture": capture, "replay": device, "launch": statistics.median(host[: options.replays // 4])}


class Training:
    def __init__(self) -> None:
        self.embedding = nn.Embedding(VOCABULARY, options.width)
        self.blocks = [Block() for _ in range(options.layers)]
        self.head = nn.Linear(options.width, VOCABULARY, bias=False)
        modules = [self.embedding, *self.blocks, self.head]
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        samples = tuple(
            (torch.randn(options.rows, options.length, options.width, device="cuda", requires_grad=True),)
            for _ in self.blocks
        )
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.eager = [block.forward for block in self.blocks]
        self.graphed = torch.cuda.make_graphed_callables(tuple(self.blocks), samples)
        torch.cuda.synchronize()
        self.capture_seconds = time.perf_counter() - begin
        self.optimizer = torch.optim.AdamW(self.parameters, 1e-4)
        self.drawn = torch.Generator().manual_seed(7)

    def loss(self, rows: int, length: int, graphed: bool = True) -> torch.Tensor:
        tokens = torch.randint(0, VOCABULARY, (rows, length + 1), generator=self.drawn, device="cpu").cuda()
        x = self.embedding(tokens[:, :-1])
        for block in self.graphed if graphed else self.eager:
            x = block(x)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), tokens[:, 1:].flatten())

    def step(self, odd: bool) -> list[float]:
        losses = []
        for _ in range(1 if odd else 2):
            length = options.length * 5 // 4 if odd else options.length
            loss = self.loss(options.rows, length, graphed=not odd) / 2
            loss.backward()
            losses.append(float(loss.detach()))
        if odd:
            losses.append(float(self.loss(options.rows, options.length).detach()))
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses


def main() -> None:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # wants CUBLAS_WORKSPACE_CONFIG=:4096:8
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    training = Training()
    replayer = Replayer() if options.threads == 2 else None
    if replayer is not None:
        replayer.start()
    losses, seconds = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        losses += training.step(options.odd_every > 0 and step % options.odd_every == options.odd_every - 1)
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - begin, 5))
        if step % 5 == 4:
            with torch.no_grad():
                losses.append(float(training.loss(2 * options.rows, options.length * (1 + step % 4) // 4, False)))
    if replayer is not None:
        replayer.over.set()
        replayer.join()
    line = {"losses": losses, "step_seconds": seconds, "capture_seconds": training.capture_seconds}
    line["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    line["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    line["one_block"] = timed_replays()
    if replayer is not None:
        line["other_thread"] = {"replays": replayer.replays, "wrong": replayer.wrong}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
