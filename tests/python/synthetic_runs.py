"""Directories of synthetic runs, for tests of what is made from a run's files."""

from __future__ import annotations

import subprocess
from pathlib import Path

RANKS = 2  # of planned_pipeline


def planned_pipeline(directory: Path, build: Path) -> Path:
    """Two pipeline stages, planned."""
    for rank in range(RANKS):
        stage = ["--layers=4", "--stages=2", f"--stage={rank}", "--micro-batches=4", "--iterations=4"]
        synthesize(directory, build, *stage, "--state=full", rank=rank)
    plan = [str(build / "stalloc-planner"), "plan", str(directory), "--time-limit=1"]
    subprocess.run(plan, check=True, capture_output=True)
    return directory


def synthesize(directory: Path, build: Path, *options: str, rank: int = 0) -> Path:
    """The trace of one rank."""
    trace = directory / "trace" / f"rank{rank:05d}.trace"
    trace.parent.mkdir(exist_ok=True)
    synth = [str(build / "stalloc-planner"), "synth", *options, f"--output={trace}"]
    subprocess.run(synth, check=True, stdout=subprocess.DEVNULL)
    return trace
