"""Trains a small model and prints its losses, bit for bit, as JSON.

train.py {mlp,transformer,recompute} [--device cpu|cuda] [--steps N] [--install] [--no-marks] [--extra-from STEP]
         [--validate-first]
"""

from __future__ import annotations

import argparse
import os
import sys

import adapter
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """One transformer layer with a causal mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):
    """A toy language model."""

    def __init__(self, recompute: bool, width: int = 64, layers: int = 3, vocabulary: int = 128) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def loss_of(model: nn.Module, kind: str, device: str) -> torch.Tensor:
    """The loss on a fresh random batch."""
    if kind == "mlp":
        x = torch.randn(64, 128, device=device)
        return functional.mse_loss(model(x), x.roll(1, 1))
    tokens = torch.randint(0, 128, (4, 48), device=device)
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())


def make_model(kind: str) -> nn.Module:
    if kind == "mlp":
        return nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 128))
    return Transformer(recompute=kind == "recompute")


def check_in_child(model: nn.Module) -> int:
    """Forks a child that finds the weights as they are, allocates, and overwrites them; its exit code."""
    weights = [parameter.detach().sum().item() for parameter in model.parameters()]
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = [parameter.detach().clone().sum().item() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e9)
    sys.exit(0 if found == weights else 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["mlp", "transformer", "recompute"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--no-marks", action="store_true")
    parser.add_argument("--extra-from", type=int, default=-1, help="from this step on, one tensor more in every step")
    parser.add_argument("--validate-first", action="store_true", help="which leaves a workspace behind")
    parser.add_argument("--fork-at", type=int, default=-1, help="in this step, a child looks at the weights")
    options = parser.parse_args()
    if options.fork_at >= 0:
        torch.set_num_threads(1)  # a forked child hangs in OpenMP, also under plain torch
    if options.install:
        adapter.install(options.device)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    model = make_model(options.kind).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    children = []
    marks = options.install and not options.no_marks
    if options.validate_first:
        if marks:
            adapter.begin_fence()
        with torch.no_grad():
            loss_of(model, options.kind, options.device)
        # As much as cuBLAS takes at its first product: most of what this model needs.
        workspace = torch.zeros(1 << 20, dtype=torch.uint8, device=options.device)
        if marks:
            adapter.end_fence()
    for step in range(options.steps):
        if marks:
            adapter.begin_iteration(step)
        if step == options.fork_at:
            children.append(check_in_child(model))
        extra = torch.empty(100_000, device=options.device) if 0 <= options.extra_from <= step else None
        with sdpa_kernel(SDPBackend.MATH):  # deterministic on every device
            loss = loss_of(model, options.kind, options.device)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item().hex())
        del extra, loss
        if marks:
            adapter.end_iteration(step)
    stats = adapter.stats() if options.install else None  # what follows is no part of the loop
    weights = sum(parameter.double().sum().item() for parameter in model.parameters()).hex()
    if options.validate_first:
        assert not workspace.any()
    adapter.show({"losses": losses, "weights": weights, "stats": stats, "children": children})


if __name__ == "__main__":
    main()
