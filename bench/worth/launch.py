"""Runs of train.py: all ranks of one to their end, and what came of it.

Importing torch and what else a program needs takes as long as some steps. So the next run's processes start while one
runs, import, and wait (bench/megatron/ranks.py). They have not imported stalloc, nor initialised CUDA: what allocator a
run gets is decided when it begins. A run that fails so, for another reason than memory, is made once more in processes
that import nothing ahead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "megatron"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "card"))

from kinds import KINDS
from ranks import Ranks
from search import Outcome

HERE = Path(__file__).resolve().parent
EXIT_OUT_OF_MEMORY = 3  # of train.py
_TIME_OVER = 124
_MODULES = ("torch", "torch._dynamo", "torch.utils.checkpoint")
_STRICT = {"STALLOC_STRICT": "1"}  # a run that would go on with plain torch ends instead

Key = tuple[str, tuple[str, ...], str]  # program, GPUs, PYTORCH_CUDA_ALLOC_CONF


class Launcher:
    """Any thread may call. `end` at last."""

    def __init__(self, chosen: argparse.Namespace, directory: Path) -> None:
        self._chosen, self._directory = chosen, directory
        self._lock, self._number, self._ports = threading.Lock(), itertools.count(), itertools.count(29600)
        self._waiting: dict[Key, Ranks] = {}
        self._ahead = not chosen.cold
        # A process ends with the thread that started it, so that one thread starts all.
        self._starter = ThreadPoolExecutor(1)
        self.processes = 0

    def prepare(self, program: str, devices: list[str], allocation: str = "") -> None:
        """A run of this kind will come: its processes start, and import. `allocation`: PYTORCH_CUDA_ALLOC_CONF."""
        key = (program, tuple(devices), allocation)
        with self._lock:
            if self._ahead and key not in self._waiting:
                self._waiting[key] = self._started(key, True)

    def drop(self, keeping: Iterable[str] = ()) -> None:
        """Ends what waits for other programs."""
        kept = set(keeping)
        with self._lock:
            for key in [key for key in self._waiting if key[0] not in kept]:
                self._waiting.pop(key).end()

    def end(self) -> None:
        self.drop()
        self._starter.shutdown()

    def run(
        self, program: str, devices: list[str], words: list[str], mode: dict[str, str]
    ) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, results of the ranks, and what they said. `mode`: what makes the allocator."""
        mode = {**mode, **(_STRICT if "STALLOC_MODE" in mode else {})}
        key = (program, tuple(devices), mode.pop("PYTORCH_CUDA_ALLOC_CONF", ""))
        with self._lock:
            ahead = self._ahead
            ranks = self._waiting.pop(key, None) or self._started(key, ahead)
        found = self._ran(ranks, program, words, mode)
        if found[0] in (0, EXIT_OUT_OF_MEMORY, _TIME_OVER) or not ahead:
            return found
        print(f"worth: {program} ended with {found[0]}; once more, with nothing imported ahead: {found[2]}", flush=True)
        again = self._ran(self._started(key, False), program, words, mode)
        if again[0] == 0:
            self._ahead = False
        return again

    def _ran(
        self, ranks: Ranks, program: str, words: list[str], mode: dict[str, str]
    ) -> tuple[int, list[dict[str, Any]], str]:
        self.processes += 1
        words = [program, "--size", self._chosen.size, "--device", self._chosen.device, *words]
        words += ["--card", str(self._chosen.card)]
        mode = {**mode, "STALLOC_DEVICE": self._chosen.device}
        try:
            code = ranks.run(HERE / "train.py", words, mode, next(self._ports), self._chosen.time_limit)
        except RuntimeError as error:  # what it imports cannot be imported
            return 1, [], str(error)
        finally:
            ranks.end()
        said = ranks.output()
        lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
        results = [json.loads(line.removeprefix("RESULT ")) for line in lines]
        if any("out_of_memory" in each for each in results):
            code = EXIT_OUT_OF_MEMORY  # whatever the other ranks made of it
        return code, results, said[-2000:]

    def _started(self, key: Key, ahead: bool) -> Ranks:
        program, devices, allocation = key
        count = KINDS[program].ranks if self._chosen.size == "real" or self._chosen.toy_ranks else 1
        modules = [*_MODULES, *KINDS[program].modules] if ahead else []
        directory = self._directory / "logs" / f"{next(self._number)}-{program}"
        environment = _environment(devices, allocation)
        return self._starter.submit(lambda: Ranks(count, modules, environment, directory)).result()


def _environment(devices: Iterable[str], allocation: str) -> dict[str, str]:
    """Of a process that waits: without what makes stalloc active, as `import torch` does where it is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_")}
    kept.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    kept["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if "STALLOC_LIB_PATH" in os.environ:
        kept["STALLOC_LIB_PATH"] = os.environ["STALLOC_LIB_PATH"]
    if allocation:
        kept["PYTORCH_CUDA_ALLOC_CONF"] = allocation
    if named := ",".join(devices):
        kept["CUDA_VISIBLE_DEVICES"] = named
    return kept


def failed(code: int, results: list[dict[str, Any]], said: str) -> Outcome:
    """Out of memory is an outcome; anything else is an error, which is told."""
    if code != EXIT_OUT_OF_MEMORY:
        print(f"worth: a process ended with {code}: {said}", file=sys.stderr, flush=True)
    return Outcome(False, figures={"exit_code": code, "ranks": results})


def warm_up(steps: int) -> int:
    """Of so many steps the first ones, which do not count: an allocator that has to learn has learnt then."""
    return steps // 2


def outcome_of(results: list[dict[str, Any]], steps: int) -> Outcome:
    """All ranks' tokens in the time of the slowest."""
    every = [max(rank["seconds"][i] for rank in results) for i in range(steps)]
    tokens = [float(sum(rank["tokens"][i] for rank in results)) for i in range(warm_up(steps), steps)]
    seconds = every[warm_up(steps) :]
    figures = {
        "seconds": seconds,
        "tokens": tokens,
        "first_seconds": every[: warm_up(steps)],
        "live_bytes": results[0].get("live_bytes", 0),
        "ranks": [{name: rank.get(name, 0) for name in ("live_bytes", "held_bytes")} for rank in results],
        "alloc_retries": [rank.get("alloc_retries") for rank in results],
        "counted": results[0].get("counted"),
        "spent_seconds": results[0].get("spent"),
        "outside_bytes": [rank.get("outside_bytes") for rank in results],
    }
    return Outcome(True, sum(tokens) / sum(seconds), max(rank.get("held_bytes", 0) for rank in results), figures)
