"""A training program under each allocator: environments, launchers, and stalloc's plan, which is made first."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

sys.path.append(str(Path(__file__).resolve().parents[1]))

from modes import Modes, PlanError, await_planners
from program_process import TRAINED, ProgramProcess

ALLOCATORS = ("native", "expandable", "stalloc")
_TRACE = "trace-fast"


class CardError(Exception):
    """Why there is no figure, for one line."""


def say(text: str) -> None:
    """Progress."""
    print(f"card: {text}", file=sys.stderr, flush=True)


class Allocators:
    """Starts processes of one program. `directory` gets their logs, and stalloc's traces and plans."""

    def __init__(self, chosen: argparse.Namespace, directory: Path) -> None:
        self._chosen, self._directory = chosen, directory
        self._modes = Modes(directory, _TRACE, chosen.device, chosen.set)
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """What stalloc needs before its measured start: a trace and a plan, or a first start under Auto."""
        traces = self._chosen.mode == "alloc"
        say("stalloc: trace and plan" if traces else "stalloc: first start under Auto")
        mode, steps = (_TRACE, self._chosen.trace_steps + 1) if traces else ("auto", self._chosen.steps)
        more = {"STALLOC_TRACE_STEPS": str(self._chosen.trace_steps)} if traces else {}
        run = self._modes.run_directory(mode)
        shutil.rmtree(run, ignore_errors=True)
        with self._process(mode, {"STALLOC_MODEL_INFO_PATH": str(run), **more}, steps=steps) as process:
            done = process.finish()
        if done.outcome != TRAINED:
            raise CardError(f"stalloc's {'trace' if traces else 'first start'}: {done.outcome}: {done.message}")
        if not traces:
            await_planners(run)
            return
        try:
            self._modes.plan()
        except PlanError as error:
            raise CardError(str(error)) from None

    @contextmanager
    def running(
        self, allocator: str, *, card: Optional[int] = None, turns: bool = False, limit_s: Optional[float] = None
    ) -> Iterator[ProgramProcess]:
        """A process of the program, which is gone afterwards.

        Args:
            card: bytes of the GPU that are left to it, CUDA's context included.
            limit_s: see --time-limit.
        """
        mode = self._chosen.mode if allocator == "stalloc" else allocator
        with self._own_run(mode) as run:
            more = {} if run is None else {"STALLOC_MODEL_INFO_PATH": str(run)}
            core = max(os.sched_getaffinity(0)) if getattr(self._chosen, "one_core", False) else None
            with self._process(mode, more, card=card, core=core, turns=turns, limit_s=limit_s) as process:
                yield process

    @contextmanager
    def _own_run(self, mode: str) -> Iterator[Optional[Path]]:
        """The run's directory of a start; under Auto a copy, as each start would leave another plan to the next."""
        if mode != "auto":
            yield self._modes.run_directory(mode) if mode == "alloc" else None
            return
        run = self._directory / f"auto-{next(self._numbers)}"
        shutil.copytree(self._modes.run_directory(mode), run)
        try:
            yield run
        finally:
            await_planners(run)
            shutil.rmtree(run, ignore_errors=True)

    @contextmanager
    def _process(
        self,
        mode: str,
        more: dict[str, str],
        *,
        steps: Optional[int] = None,
        card: Optional[int] = None,
        core: Optional[int] = None,
        turns: bool = False,
        limit_s: Optional[float] = None,
    ) -> Iterator[ProgramProcess]:
        chosen = self._chosen
        options = ["--steps", str(chosen.steps if steps is None else steps)]
        options += ["--optimizer-steps", str(chosen.optimizer_steps), "--warm-up", str(chosen.warm_up)]
        options += [] if card is None else ["--card", str(card)]
        options += [] if core is None else ["--core", str(core)]
        process = ProgramProcess(
            self._modes.launcher(mode),
            options,
            chosen.program,
            {**self._environment(mode), **more},
            self._directory / f"{next(self._numbers):03}-{mode}.log",
            turns=turns,
            limit_s=chosen.time_limit if limit_s is None else limit_s,
        )
        try:
            yield process
        finally:
            process.kill()

    def _environment(self, mode: str) -> dict[str, str]:
        found = self._modes.environment(mode)
        if self._chosen.device != "cpu" and self._chosen.gpu is not None:
            found["CUDA_VISIBLE_DEVICES"] = self._chosen.gpu
        return found
