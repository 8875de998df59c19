"""Attempts of one program: a configuration trained under an allocator, in fresh processes, and what came of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from by_hand import BUDGET, EXPANDABLE, NATIVE
from documents import GIB
from known import Configuration, Known
from launch import EXIT_OUT_OF_MEMORY, Launcher, failed, outcome_of
from modes import Modes, PlanError
from search import Outcome

OFFLOAD = "stalloc-offload"  # stalloc, with a choice that may go to the host
GRAPHS = "stalloc-graphs"  # the same, with captured micro-batches where that is faster
PLANNED_STEPS = 4  # of the trace that stalloc is planned from
_TRACE = "trace-exact"
_STRICT = ["STALLOC_STRICT=1"]  # a run that would go on with plain torch ends instead
# Of contenders that are not stalloc's.
_MODES = {"native": "native", NATIVE: "native", **dict.fromkeys(("expandable", EXPANDABLE, BUDGET), "expandable")}


class Attempts:
    """From when it is made on there are --row-seconds."""

    def __init__(
        self, chosen: argparse.Namespace, program: str, directory: Path, known: Known, launcher: Launcher
    ) -> None:
        self._chosen, self._program, self._directory = chosen, program, directory
        self._known, self._launcher = known, launcher
        self._deadline = min(time.monotonic() + chosen.row_seconds, chosen.until)
        self._broken: dict[Path, Optional[Outcome]] = {}  # what went wrong with a plan, if anything

    def in_time(self, configuration: Configuration, allocator: str) -> Optional[Outcome]:
        """None: there is no time left."""
        if allocator in (OFFLOAD, GRAPHS) and not (configuration.offload or configuration.graphs):
            allocator = "stalloc"  # the same run
        known = self._known.get(self._program, allocator, configuration)
        if known is not None:
            return known
        if time.monotonic() > self._deadline:
            print(f"{self._program}, {allocator}: no time left (--row-seconds, --budget-s)", flush=True)
            return None
        outcome = self.made(configuration, allocator)
        self._known.add(self._program, allocator, configuration, outcome)
        return outcome

    def made(self, configuration: Configuration, allocator: str) -> Outcome:
        begin = time.monotonic()
        outcome = self._train(configuration, allocator)
        seconds = time.monotonic() - begin
        line = f"{self._program}, {allocator}, {configuration.worded()}: {_text(outcome)}"
        print(f"{line}; {seconds:.0f} s", flush=True)
        return outcome

    def _train(self, configuration: Configuration, allocator: str) -> Outcome:
        modes = Modes(self._directory / "stalloc" / configuration.key(), _TRACE, self._chosen.device, _STRICT)
        mode = _MODES.get(allocator, "alloc")
        if mode == "alloc":
            info = modes.run_directory(mode)
            if info not in self._broken:
                self._broken[info] = self._plan(configuration, modes)
            broken = self._broken[info]
            if broken is not None:
                return broken
        steps = self._chosen.steps
        code, results, said = self._run(configuration, allocator, steps, modes.environment(mode))
        return failed(code, results, said) if code else outcome_of(results, steps)

    def _plan(self, configuration: Configuration, modes: Modes) -> Optional[Outcome]:
        environment = {**modes.environment(_TRACE), "STALLOC_TRACE_STEPS": str(PLANNED_STEPS)}
        code, results, said = self._run(configuration, "stalloc", PLANNED_STEPS, environment)
        if code:
            return failed(code, results, said)
        try:
            modes.plan()
        except PlanError as error:
            return failed(1, [], str(error))
        return None

    def _run(
        self, configuration: Configuration, allocator: str, steps: int, environment: Mapping[str, str]
    ) -> tuple[int, list[dict[str, Any]], str]:
        directory = self._directory / allocator / configuration.key()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "fit.json").write_text(configuration.document)
        changes = configuration.by_hand or ("--fit", str(directory / "fit.json"))
        words = ["--micro-batch", str(configuration.micro_batch), *changes, "--steps", str(steps)]
        words += ["--graphs"] if configuration.graphs else []
        return self._launcher.run(self._program, words, environment)


def _text(outcome: Outcome) -> str:
    if not outcome.fits:
        return "does not fit" if (outcome.figures or {}).get("exit_code") == EXIT_OUT_OF_MEMORY else "failed"
    return f"{outcome.tokens_per_second:.0f} tokens/s, held {outcome.held / GIB:.2f} GiB"
