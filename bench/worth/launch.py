"""Runs of train.py: all ranks of one to their end, and what came of it."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinds import KINDS
from ranks import run_ranks
from search import Outcome

EXIT_OUT_OF_MEMORY = 3  # of train.py


class Launcher:
    """`directory` gets a log of each run."""

    def __init__(self, chosen: argparse.Namespace, directory: Path) -> None:
        self._chosen, self._logs = chosen, directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.processes = 0

    def ranks(self, program: str) -> int:
        """A toy on a GPU has one."""
        return KINDS[program].ranks if self._chosen.size == "real" or self._chosen.device == "cpu" else 1

    def run(
        self, program: str, words: list[str], environment: Mapping[str, str]
    ) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, results of the ranks, and the end of what they said. `environment`: of the allocator (modes.py).

        train.py imports stalloc itself, before anything is on the device.
        """
        self.processes += 1
        chosen, ranks = self._chosen, self.ranks(program)
        command = [str(Path(__file__).with_name("train.py")), program, "--size", chosen.size]
        command += ["--device", chosen.device, *words, "--card", str(chosen.card)]
        own = {**environment, "STALLOC_DEVICE": chosen.device, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        if chosen.device == "cuda":
            own["CUDA_VISIBLE_DEVICES"] = ",".join(itertools.islice(chosen.devices.split(","), ranks))
        log = self._logs / f"{self.processes}-{program}"
        port = 29600 + self.processes
        limit = chosen.time_limit
        code, said = run_ranks(command, ranks, own, log, port=port, limit_seconds=limit, grouped=ranks > 1)
        lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
        results = sorted((json.loads(line.removeprefix("RESULT ")) for line in lines), key=lambda each: each["rank"])
        if any("out_of_memory" in each for each in results):
            code = EXIT_OUT_OF_MEMORY  # whatever the other ranks made of it
        return code, results, said[-2000:]


def failed(code: int, results: list[dict[str, Any]], said: str) -> Outcome:
    """Out of memory is an outcome; anything else is an error, which is printed."""
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
        "outside_bytes": [rank.get("outside_bytes") for rank in results],
    }
    return Outcome(True, sum(tokens) / sum(seconds), max(rank.get("held_bytes", 0) for rank in results), figures)
