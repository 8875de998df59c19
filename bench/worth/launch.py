"""Runs of train.py: all ranks of one to their end, and what came of it."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kinds import KINDS
from search import Outcome

EXIT_OUT_OF_MEMORY = 3  # of train.py
_TIME_OVER = 124
_STRICT = {"STALLOC_STRICT": "1"}  # a run that would go on with plain torch ends instead


class Launcher:
    """`directory` gets a log of each run."""

    def __init__(self, chosen: argparse.Namespace, directory: Path) -> None:
        self._chosen, self._logs = chosen, directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.processes = 0

    def ranks(self, program: str) -> int:
        """A toy on a GPU has one."""
        return KINDS[program].ranks if self._chosen.size == "real" or self._chosen.device == "cpu" else 1

    def run(self, program: str, words: list[str], mode: dict[str, str]) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, results of the ranks, and the end of what they said. `mode`: what makes the allocator."""
        self.processes += 1
        chosen, ranks = self._chosen, self.ranks(program)
        launcher = [
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={ranks}",
            f"--master-port={29600 + self.processes}",
        ]
        command = [sys.executable, *(launcher if ranks > 1 else []), str(Path(__file__).with_name("train.py")), program]
        command += ["--size", chosen.size, "--device", chosen.device, *words, "--card", str(chosen.card)]
        log = self._logs / f"{self.processes}-{program}.txt"
        with log.open("w") as file:
            code = self._wait(subprocess.Popen(
                command, env=self._environment(ranks, mode), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            ))  # fmt: skip
        said = log.read_text(errors="replace")
        lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
        results = sorted((json.loads(line.removeprefix("RESULT ")) for line in lines), key=lambda each: each["rank"])
        if any("out_of_memory" in each for each in results):
            code = EXIT_OUT_OF_MEMORY  # whatever the other ranks made of it
        return code, results, said[-2000:]

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(self._chosen.time_limit)
        except subprocess.TimeoutExpired:
            return _TIME_OVER
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environment(self, ranks: int, mode: dict[str, str]) -> dict[str, str]:
        """train.py imports stalloc itself, before anything is on the device; torchrun's own process does not."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith("STALLOC_") or n == "STALLOC_LIB_PATH"}
        kept.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        kept["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        if self._chosen.device == "cuda":
            kept["CUDA_VISIBLE_DEVICES"] = ",".join(itertools.islice(self._chosen.devices.split(","), ranks))
        return {**kept, "STALLOC_DEVICE": self._chosen.device, **mode, **(_STRICT if "STALLOC_MODE" in mode else {})}


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
