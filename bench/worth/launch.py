"""One run of train.py: all its ranks, to their end, and what came of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kinds import KINDS
from search import Outcome

HERE = Path(__file__).resolve().parent
EXIT_OUT_OF_MEMORY = 3  # of train.py


class Process:
    """Runs train.py, on its GPUs, to the end."""

    def __init__(self, chosen: argparse.Namespace, program: str, devices: list[str]) -> None:
        self._chosen, self._program, self._devices = chosen, program, devices
        self._port = 29600 + int(devices[0]) if devices else 29600

    def run(self, words: list[str], mode: dict[str, str], launched: bool) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, results of the ranks, and what they said. `launched`: under `stalloc run`."""
        script = [str(HERE / "train.py"), self._program, "--size", self._chosen.size, "--device", self._chosen.device]
        script += ["--card", str(self._chosen.card), *words]
        command = [sys.executable, *(["-m", "stalloc", "run"] if launched else []), *script]
        # A toy is one process: a CPU's collectives are nobody's concern here.
        ranks = KINDS[self._program].ranks if self._chosen.size == "real" else 1
        started = [
            subprocess.Popen(
                command,
                env=self._environment(rank, ranks, mode),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        return self._wait(started)

    def _wait(self, started: list[subprocess.Popen[str]]) -> tuple[int, list[dict[str, Any]], str]:
        deadline = time.monotonic() + self._chosen.time_limit
        with ThreadPoolExecutor(len(started)) as pool:
            outputs = list(pool.map(lambda process: _communicate(process, started, deadline), started))
        codes = [process.returncode for process in started]
        code = EXIT_OUT_OF_MEMORY if EXIT_OUT_OF_MEMORY in codes else next((c for c in codes if c), 0)
        lines = [line for out, _ in outputs for line in out.splitlines() if line.startswith("RESULT ")]
        return code, [json.loads(line.removeprefix("RESULT ")) for line in lines], outputs[0][1][-2000:]

    def _environment(self, rank: int, ranks: int, mode: dict[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "PYTORCH_CUDA_ALLOC_CONF"}
        kept = {
            key: value for key, value in kept.items() if not key.startswith("STALLOC_") or key == "STALLOC_LIB_PATH"
        }
        if self._devices:
            kept["CUDA_VISIBLE_DEVICES"] = ",".join(self._devices)
        if ranks > 1:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": self._port}
            kept |= {key: str(value) for key, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
        return {**kept, "STALLOC_DEVICE": self._chosen.device, **mode}


def _communicate(
    process: subprocess.Popen[str], others: list[subprocess.Popen[str]], deadline: float
) -> tuple[str, str]:
    """A rank that fails ends the others, which would wait for it; so does the time limit."""
    try:
        found = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        found = process.communicate()
    if process.returncode:
        for other in others:
            if other.poll() is None:
                other.kill()
    return found


def failed(code: int, results: list[dict[str, Any]], said: str) -> Outcome:
    """Out of memory is an outcome; anything else is an error, which is told."""
    if code != EXIT_OUT_OF_MEMORY:
        print(f"worth: a process ended with {code}: {said}", file=sys.stderr, flush=True)
    return Outcome(False, figures={"exit_code": code, "ranks": results})


def warm_up(steps: int) -> int:
    """Of so many steps the first ones, which do not count."""
    return min(3, steps // 2)


def outcome_of(results: list[dict[str, Any]], steps: int) -> Outcome:
    """All ranks' tokens in the time of the slowest."""
    counted = range(warm_up(steps), steps)
    seconds = [max(rank["seconds"][i] for rank in results) for i in counted]
    tokens = [float(sum(rank["tokens"][i] for rank in results)) for i in counted]
    figures = {
        "seconds": seconds,
        "tokens": tokens,
        "live_bytes": results[0].get("live_bytes", 0),
        "alloc_retries": [rank.get("alloc_retries") for rank in results],
        "spent_seconds": results[0].get("spent"),
        "outside_bytes": [rank.get("outside_bytes") for rank in results],
    }
    return Outcome(True, sum(tokens) / sum(seconds), max(rank.get("held_bytes", 0) for rank in results), figures)
