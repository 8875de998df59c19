"""A mixture-of-experts or dense model whose micro-batch, forward and backward, is one CUDA graph; the rest is eager.

Experts are called one after another with a fixed capacity, as model libraries do, so that kernels are short and their
launches bound the eager step. Gradients accumulate in place; clipping, AdamW and evaluations are eager. With `--eager`
nothing is captured: the same arithmetic, kernel by kernel. `--card 79G` takes the rest of the GPU from the driver.
Prints one JSON line: losses, seconds of each step, tokens a second (median of the second half), peaks in bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worth"))

from models import MLP, Experts, Shape
from occupied import occupy, parse_bytes

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--experts", type=int, default=64, help="experts a layer; 0: a dense model")
parser.add_argument("--layers", type=int, default=28)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=1024, help="width of an expert's, or the dense model's, inner layer")
parser.add_argument("--rows", type=int, default=12, help="of a micro-batch")
parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
parser.add_argument("--micro-batches", type=int, default=4, help="of a step")
parser.add_argument("--evaluated-rows", type=int, default=8)
parser.add_argument("--steps", type=int, default=16)
parser.add_argument("--eager", action="store_true", help="capture nothing")
parser.add_argument("--card", type=parse_bytes, help="bytes that the GPU is to have, its context included")
options = parser.parse_args()

VOCABULARY = 32000 if torch.cuda.is_available() else 64
HEADS = max(1, options.width // 128)
SHAPE = Shape(options.layers, options.width, HEADS, HEADS, options.hidden, VOCABULARY, experts=options.experts)


def rotated(x: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    rates = 10000 ** (-torch.arange(0, x.shape[-1], 2, device=x.device, dtype=torch.float32) / x.shape[-1])
    angles = torch.outer(positions, rates)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(options.width, 3 * options.width, bias=False)
        self.out = nn.Linear(options.width, options.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        query, key, value = self.qkv(x).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(options.width) for _ in range(2))
        self.attention = Attention()
        self.inner = Experts(SHAPE, options.experts) if options.experts else MLP(SHAPE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.inner(self.norms[1](x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, options.width)
        self.layers = nn.ModuleList(Layer() for _ in range(options.layers))
        self.head = nn.Linear(options.width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), targets.flatten())


class MicroBatch:
    """Forward and backward of one micro-batch, captured or not; gradients accumulate in the parameters' `grad`."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model = model
        self.tokens = torch.zeros(2, options.rows, options.length, dtype=torch.long, device=device)
        self.graph = None
        if options.eager or device.type != "cuda":
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self._run()
        for parameter in model.parameters():
            parameter.grad.zero_()

    def _run(self) -> torch.Tensor:
        loss = self.model(self.tokens[0], self.tokens[1]) / options.micro_batches
        loss.backward()
        return loss.detach()

    def __call__(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.tokens[0].copy_(tokens)
        self.tokens[1].copy_(targets)
        if self.graph is None:
            return self._run()
        self.graph.replay()
        return self.loss.clone()


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.card is not None:
        occupy(options.card, device)
    drawn = torch.Generator().manual_seed(7)

    def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows_of_tokens = torch.randint(0, VOCABULARY, (rows, options.length + 1), generator=drawn).to(device)
        return rows_of_tokens[:, :-1], rows_of_tokens[:, 1:]

    torch.set_default_dtype(torch.bfloat16 if device.type == "cuda" else torch.float32)
    with device:
        model = Model()
    for parameter in model.parameters():  # gradients keep their addresses, as graphs need it
        parameter.grad = torch.zeros_like(parameter)
    micro_batch = MicroBatch(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    losses, seconds = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        parts = [micro_batch(*batch(options.rows)) for _ in range(options.micro_batches)]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(float(sum(parts)))
        seconds.append(time.perf_counter() - begin)
        if step % 5 == 4:
            with torch.no_grad():
                losses.append(float(model(*batch(options.evaluated_rows))))
    tokens = options.rows * options.length * options.micro_batches
    line = {
        "losses": losses,
        "seconds": [round(each, 5) for each in seconds],
        "tokens_a_second": round(tokens / statistics.median(seconds[len(seconds) // 2 :])),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    if device.type == "cuda":
        line["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        line["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
