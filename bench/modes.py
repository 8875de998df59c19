"""The allocators that benches compare: the environment of each, what starts a program under it, and stalloc's plan.

native, expandable (PyTorch's expandable_segments:True), trace-fast and trace-exact, alloc (from the plan of the fast
trace where there is one, else of the exact one), auto (a start that traces, plans and switches by itself), auto-again
(the next start of the same).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AUTO = ("auto", "auto-again")
TRACES = ("trace-fast", "trace-exact")
UNDER_STALLOC = ("alloc", *TRACES, *AUTO)
MODES = ("native", "expandable", *TRACES, "alloc", *AUTO)
_PLANNERS_S = 120.0


class PlanError(Exception):
    """There is no plan; says why."""


class Modes:
    """Traces and plans of one program, under `directory`.

    Args:
        trace: the mode whose trace is planned.
        device: auto, cuda or cpu.
        settings: NAME=VALUE, for all of stalloc's processes.
    """

    def __init__(self, directory: Path, trace: str = "trace-fast", device: str = "auto", settings: Sequence[str] = ()):
        self._directory, self._trace, self._device = directory, trace, device
        self._settings = dict(setting.split("=", maxsplit=1) for setting in settings)

    def run_directory(self, mode: str) -> Path:
        """STALLOC_MODEL_INFO_PATH of the mode."""
        return self._directory / ("auto" if mode in AUTO else self._trace if mode == "alloc" else mode)

    def launcher(self, mode: str) -> list[str]:
        """Words after python that a script follows."""
        return ["-m", "stalloc", "run"] if mode in UNDER_STALLOC else []

    def environment(self, mode: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("STALLOC_") or k == "STALLOC_LIB_PATH"}
        kept["PYTHONUNBUFFERED"] = "1"
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            kept.pop(name, None)
        if mode == "expandable":
            kept["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if self._device == "cpu":
            kept["CUDA_VISIBLE_DEVICES"] = ""
        if mode not in UNDER_STALLOC:
            return kept
        kept["STALLOC_MODE"] = "Auto" if mode in AUTO else "Alloc" if mode == "alloc" else "Trace"
        kept["STALLOC_MODEL_INFO_PATH"] = str(self.run_directory(mode))
        if mode in TRACES:
            kept["STALLOC_TRACE_FAST_MODE"] = str(int(mode == "trace-fast"))
        if self._device != "auto":
            kept["STALLOC_DEVICE"] = self._device
        return kept | self._settings

    def plan(self, options: Sequence[str] = ()) -> dict[str, Any]:
        """Of the trace; what `stalloc plan --json` prints, and the seconds that it took."""
        words = [sys.executable, "-m", "stalloc", "plan", str(self.run_directory("alloc")), "--json", *options]
        begin = time.perf_counter()
        done = subprocess.run(words, env=self.environment("native"), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PlanError(f"stalloc plan ended with {done.returncode}: {done.stderr.strip()}")
        return {**json.loads(done.stdout), "wall_seconds": time.perf_counter() - begin}


def await_planners(run: Path) -> None:
    """Until neither a start under Auto nor its planner, which leaves the next start's plan, works in the directory."""
    from stalloc.core import run_files  # not needed where other modes run alone

    until = time.monotonic() + _PLANNERS_S
    while run_files.in_use(run) and time.monotonic() < until:
        time.sleep(0.1)
