"""Trains in a plain loop that is disturbed as the flags say; prints, as JSON, what it computed to the last bit.

Everything is deterministic but what the other thread does, which computes nothing of the result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import threading
from collections.abc import Iterator

import torch
from torch import nn

WIDTH = 128


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--evaluate-first", action="store_true", help="before the first iteration")
    parser.add_argument("--raise-at", type=int, nargs="*", default=[], help="in the middle of their forward passes")
    parser.add_argument("--fork-at", type=int, nargs="*", default=[], help="a child trains on, and ends")
    parser.add_argument("--thread", action="store_true", help="one more, which allocates and frees all the time")
    parser.add_argument("--never-repeats", action="store_true", help="each iteration asks for other sizes")
    return parser.parse_args()


class SkippedError(Exception):
    pass


class Layer(nn.Module):
    """Raises when it is told to, with the activations of those before it alive."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.raises = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.up(x))
        if self.raises:
            raise SkippedError
        return x + self.down(hidden)


class Loop:
    def __init__(self, never_repeats: bool) -> None:
        torch.manual_seed(5)
        self.layers = [Layer() for _ in range(5)]
        self.model = nn.Sequential(*self.layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.sizes = random.Random(9) if never_repeats else None

    def batch(self, number: int) -> torch.Tensor:
        rows = self.sizes.randint(1, 800) if self.sizes is not None else 256
        return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(number))

    def passes(self) -> Iterator[nn.Sequential]:
        """Of an iteration: as many as it likes where nothing repeats."""
        for _ in range(self.sizes.randint(1, 3) if self.sizes is not None else 1):
            first = self.sizes.randrange(4) if self.sizes is not None else 0
            yield self.model[first:]

    def iteration(self, number: int, raises: bool) -> str:
        self.layers[3].raises = raises
        self.optimizer.zero_grad()
        total = 0.0
        for part, model in enumerate(self.passes()):
            loss = model(self.batch(100 * number + part)).square().mean()
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total.hex()

    def evaluate(self) -> str:
        with torch.no_grad():
            return float(self.model(torch.ones(700, WIDTH)).sum().item()).hex()


def fork(loop: Loop, number: int) -> int:
    """The child's exit code: it has the weights, and can go on."""
    child = os.fork()
    if child == 0:
        before = loop.evaluate()
        loop.iteration(1000 + number, raises=False)
        os._exit(0 if loop.evaluate() != before else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Churn:
    """Tensors of a thread of its own, each with a value that nobody else may change."""

    def __init__(self) -> None:
        self.wrong = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        sizes, live = random.Random(1), []
        while not self._over.wait(0.0005):
            value = float(sizes.randrange(1000))
            live.append((value, torch.full((sizes.randrange(1, 200000),), value)))
            if len(live) > 8:
                value, tensor = live.pop(sizes.randrange(len(live)))
                self.wrong += not bool((tensor == value).all())

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self.wrong


def main() -> None:
    arguments = parse_arguments()
    loop = Loop(arguments.never_repeats)
    churn = Churn() if arguments.thread else None
    results = [loop.evaluate()] if arguments.evaluate_first else []
    children = []
    for number in range(arguments.iterations):
        try:
            results.append(loop.iteration(number, raises=number in arguments.raise_at))
        except SkippedError:
            results.append("skipped")
        if number in arguments.fork_at:
            children.append(fork(loop, number))
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in loop.model.parameters())).hexdigest()
    wrong = churn.end() if churn is not None else 0
    print(json.dumps({"results": results, "weights": weights, "children": children, "wrong": wrong}))


if __name__ == "__main__":
    main()
