"""Lets the ranks of several distributed runs on the same GPUs train in turns, a step of one run at a time.

A rank that has `TURNS` in its environment, a directory, waits before each of Megatron's steps for a line in the pipe
`go<rank>` there, and writes the step's seconds to `done<rank>`, both device-synchronised. `Turns` is the other side.
"""

from __future__ import annotations

import functools
import os
import select
import time
from pathlib import Path
from typing import Any, Callable

_POLL_SECONDS = 1.0


def wait_for_turns(directory: Path, rank: int) -> None:
    """In a rank, before training: Megatron's train_step takes turns from now on."""
    import torch
    from megatron.training import training

    train_step = training.train_step

    @functools.wraps(train_step)
    def in_turn(*arguments: Any, **named: Any) -> Any:
        go.readline()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = train_step(*arguments, **named)
        torch.cuda.synchronize()
        done.write(f"{time.perf_counter() - begin!r}\n")
        return result

    go = (directory / f"go{rank}").open()
    done = (directory / f"done{rank}").open("w", buffering=1)
    training.train_step = in_turn


class Turns:
    """One run's pipes. Make it before the ranks start."""

    def __init__(self, directory: Path, ranks: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        for name in ("go", "done"):
            for rank in range(ranks):
                (directory / f"{name}{rank}").unlink(missing_ok=True)
                os.mkfifo(directory / f"{name}{rank}")
        # Both ways, so that opening waits for nobody.
        self._go = [os.open(directory / f"go{rank}", os.O_RDWR) for rank in range(ranks)]
        self._done = [os.open(directory / f"done{rank}", os.O_RDWR) for rank in range(ranks)]

    def step(self, check: Callable[[], None]) -> float:
        """Seconds of a step of all ranks: those of the slowest. `check` is called while it takes, and may raise."""
        for pipe in self._go:
            os.write(pipe, b"\n")
        return max(self._answer(pipe, check) for pipe in self._done)

    def close(self) -> None:
        for pipe in (*self._go, *self._done):
            os.close(pipe)

    @staticmethod
    def _answer(pipe: int, check: Callable[[], None]) -> float:
        line = b""
        while not line.endswith(b"\n"):
            if select.select([pipe], [], [], _POLL_SECONDS)[0]:
                line += os.read(pipe, 1)
            else:
                check()
        return float(line)
