"""A small transformer, trained on the CPU (or GPU) as the flags say; writes losses and stalloc's figures as JSON.

Deterministic: the same flags give the same losses to the last bit under any allocator.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, WIDTH, LAYERS = 96, 48, 64, 3


class Tokens(Dataset[torch.Tensor]):
    """Row i is the same tensor in every process."""

    def __len__(self) -> int:
        return 100000

    def __getitem__(self, row: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(row)
        return torch.randint(0, VOCABULARY, (LENGTH + 1,), generator=generator)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        logits = functional.linear(x, self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--marks", choices=["none", "iteration", "full"], default="full")
    parser.add_argument("--api", action=argparse.BooleanOptionalAction, default=True, help="import stalloc")
    parser.add_argument("--end", choices=["well", "exit3", "raise"], default="well")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--extra-from", type=int, help="one more tensor a step from this iteration on")
    parser.add_argument("--rows-from", type=int, nargs=2, metavar=("ITERATION", "ROWS"))
    parser.add_argument("--eval-at", type=int, nargs="*", default=[])
    parser.add_argument("--fence", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workers", choices=["none", "fork", "spawn"], default="none")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def batches(arguments: argparse.Namespace) -> Generator[torch.Tensor, None, None]:
    """Micro-batches without end; by worker processes if asked for."""
    if arguments.workers == "none":
        dataset, row, step = Tokens(), 0, 0
        while True:
            change = arguments.rows_from
            rows = change[1] if change and step // 2 >= change[0] else arguments.rows
            yield torch.stack([dataset[row + offset] for offset in range(rows)])
            row, step = row + rows, step + 1
    yield from DataLoader(
        Tokens(), batch_size=arguments.rows, num_workers=2, multiprocessing_context=arguments.workers, prefetch_factor=2
    )


class Loop:
    def __init__(self, arguments: argparse.Namespace, api: Any) -> None:
        self.arguments, self.api = arguments, api
        self.full = api is not None and arguments.marks == "full"
        torch.manual_seed(7)
        self.device = torch.device("cuda" if os.environ.get("STALLOC_DEVICE") == "cuda" else "cpu")
        self.model = Model(arguments.recompute).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batches = batches(arguments)

    def iteration(self, number: int) -> float:
        if self.api is not None and self.arguments.marks != "none":
            self.api.iteration(number)
        extra = None
        if self.arguments.extra_from is not None and number >= self.arguments.extra_from:
            extra = torch.full((4097 + number,), 3.0, device=self.device)
        total = torch.zeros((), device=self.device)
        for half in range(2):
            if self.full:
                self.api.microbatch("F", half)
            loss = self.model(next(self.batches).to(self.device)) / 2
            if self.full:
                self.api.microbatch("B", half)
            loss.backward()
            total += loss.detach()
        if self.full:
            self.api.optimizer()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if extra is not None and not bool((extra == 3.0).all()):
            raise RuntimeError("the extra tensor was overwritten")
        return total.item()

    def evaluate(self) -> float:
        fence = self.api.fence("eval") if self.api is not None and self.arguments.fence else contextlib.nullcontext()
        with fence, torch.no_grad():
            self.model.eval()
            loss = self.model(next(self.batches).to(self.device)).item()
            self.model.train()
        return loss

    def close(self) -> None:
        """Ends the loader's workers, and waits for the threads that feed them.

        One still at work when the interpreter ends drops its semaphores half: unlinked, but not yet signed off with
        multiprocessing's tracker, which then warns on stderr that they leaked.
        """
        self.batches.close()
        for thread in threading.enumerate():
            if thread.name == "QueueFeederThread":
                thread.join()


def main() -> None:
    arguments = parse_arguments()
    api: Any = None
    if arguments.api:
        import stalloc

        api = stalloc
    loop = Loop(arguments, api)
    losses, evaluations, figures = [], [], []
    for number in range(arguments.iterations):
        figures.append(api.stats() if api is not None else {})
        losses.append(loop.iteration(number).hex())
        if number in arguments.eval_at:
            evaluations.append(loop.evaluate().hex())
    figures.append(api.stats() if api is not None else {})
    digest = hashlib.sha256()
    for parameter in loop.model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    result = {
        "losses": losses,
        "evaluations": evaluations,
        "weights": digest.hexdigest(),
        "figures": figures,
        "mode": api.mode() if api is not None else None,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result))
    loop.close()
    if arguments.end == "exit3":
        sys.exit(3)
    if arguments.end == "raise":
        raise RuntimeError("the script's own error")


if __name__ == "__main__":
    main()
