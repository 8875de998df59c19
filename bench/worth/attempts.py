"""Attempts of one program: a configuration trained under an allocator, in fresh processes, and what came of it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from known import Configuration, Known
from launch import EXIT_OUT_OF_MEMORY, Launcher, failed, outcome_of
from search import Outcome
from worth_table import GIB

PLANNED_STEPS = 4  # of the trace that stalloc is planned from
MODES = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}


class Attempts:
    """Any thread may call; each allocator from one at a time."""

    def __init__(
        self, chosen: argparse.Namespace, program: str, directory: Path, known: Known, launcher: Launcher
    ) -> None:
        self._chosen, self._program, self._directory = chosen, program, directory
        self._known, self._launcher = known, launcher
        self._deadline: Optional[float] = None
        self._planner = ThreadPoolExecutor(1)
        self._plans: dict[Path, Future[Optional[Outcome]]] = {}

    def begin(self) -> None:
        """From here on there are --row-seconds."""
        self._deadline = time.monotonic() + self._chosen.row_seconds

    def known(self, configuration: Configuration, allocator: str) -> Optional[Outcome]:
        return self._known.get(self._program, allocator, configuration)

    def in_time(self, configuration: Configuration, allocator: str, devices: list[str]) -> Optional[Outcome]:
        """None: there is no time left."""
        known = self.known(configuration, allocator)
        if known is not None:
            return known
        if self._deadline is not None and time.monotonic() > self._deadline:
            print(f"{self._program}, {allocator}: no time left (--row-seconds)", flush=True)
            return None
        outcome = self.made(configuration, allocator, devices)
        self._known.add(self._program, allocator, configuration, outcome)
        return outcome

    def made(self, configuration: Configuration, allocator: str, devices: list[str]) -> Outcome:
        begin = time.monotonic()
        outcome = self._train(configuration, allocator, devices)
        seconds = time.monotonic() - begin
        told = f"{self._program}, {allocator}, {configuration.told()}: {_text(outcome)}"
        print(f"{told}; {seconds:.0f} s", flush=True)
        return outcome

    def plan_ahead(self, configuration: Configuration, devices: list[str]) -> None:
        """Traces what stalloc will run; the plan is made while others have the GPU."""
        if self.known(configuration, "stalloc") is None:
            self._planned(configuration, devices)

    def _train(self, configuration: Configuration, allocator: str, devices: list[str]) -> Outcome:
        mode = MODES.get(allocator)
        if mode is None:
            broken = self._planned(configuration, devices).result()
            if broken is not None:
                return broken
            mode = {"STALLOC_MODEL_INFO_PATH": str(self._info(configuration)), "STALLOC_MODE": "Alloc"}
        code, results, said = self._run(configuration, allocator, devices, self._chosen.steps, mode)
        if code:
            return failed(code, results, said)
        outcome = outcome_of(results, self._chosen.steps)
        if allocator == "stalloc" and outcome.figures is not None:
            outcome.figures["served"] = served(self._info(configuration))
        return outcome

    def _planned(self, configuration: Configuration, devices: list[str]) -> Future[Optional[Outcome]]:
        """Where a plan of the configuration is being made; its result is what went wrong, if anything."""
        info = self._info(configuration)
        if info not in self._plans:
            mode = {"STALLOC_MODEL_INFO_PATH": str(info), "STALLOC_MODE": "Trace"}
            mode["STALLOC_TRACE_STEPS"] = str(PLANNED_STEPS)
            code, results, said = self._run(configuration, "stalloc", devices, PLANNED_STEPS, mode)
            self._plans[info] = self._planner.submit(lambda: failed(code, results, said) if code else _plan(info))
        return self._plans[info]

    def _run(
        self, configuration: Configuration, allocator: str, devices: list[str], steps: int, mode: dict[str, str]
    ) -> tuple[int, list[dict[str, Any]], str]:
        directory = self._of(configuration, allocator)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "fit.json").write_text(configuration.document)
        words = ["--micro-batch", str(configuration.micro_batch), "--fit", str(directory / "fit.json")]
        return self._launcher.run(self._program, devices, [*words, "--steps", str(steps)], mode)

    def _of(self, configuration: Configuration, allocator: str) -> Path:
        return self._directory / allocator / configuration.key()

    def _info(self, configuration: Configuration) -> Path:
        return self._of(configuration, "stalloc") / "info"


def _plan(info: Path) -> Optional[Outcome]:
    done = subprocess.run(
        [sys.executable, "-m", "stalloc", "plan", str(info)], capture_output=True, text=True, check=False
    )
    return failed(done.returncode, [], done.stderr) if done.returncode else None


def served(info: Path) -> dict[str, Any]:
    """From rank 0's summary: requests by who served them, and what changing the arena has taken."""
    path = info / "log_output" / "rank00000.summary.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    names = ("requests", "planned_hits", "dynamic_hits", "heap_hits", "upstream", "misses", "steady")
    names += ("efficiency", "held_peak_bytes", "upstream_reserved_peak_bytes", "gave_up", "departed")
    return {name: value for name, value in found.items() if name in names or name.startswith("arena_")}


def _text(outcome: Outcome) -> str:
    if not outcome.fits:
        return "does not fit" if (outcome.figures or {}).get("exit_code") == EXIT_OUT_OF_MEMORY else "failed"
    return f"{outcome.tokens_per_second:.0f} tokens/s, held {outcome.held / GIB:.2f} GiB"
