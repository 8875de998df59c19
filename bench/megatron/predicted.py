"""What `stalloc fit` predicts of a workload with larger micro-batches, and with some of its layers recomputed, from a
trace of the same with smaller ones (compare.py --modes trace --layers). Bytes and seconds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "patches"))

from stalloc.fitting import step_model
from stalloc.fitting.replayed import Change, TracedRun
from stalloc.fitting.work import Load
from stalloc.report import collect


def predicted(directory: Path, scale: float, count: int, recomputed: str) -> dict[str, Any]:
    """Of all ranks; a step takes as long as that of the slowest.

    Args:
        directory: of the traced run.
        scale: micro-batches are so many times as large.
        count: of them in a step, as traced.
        recomputed: layers whose names in the trace this regular expression finds; empty: none.
    """
    live, held, steps = [], [], []
    for files in collect.find_ranks(directory):
        run = TracedRun(files.trace)
        device = max(run.search(1 << 62, 1.0, 0.0), key=lambda each: int(each["peak"]))
        layers = [each for each in device["layers"] if recomputed and re.search(recomputed, each["name"])]
        outcome = run.outcome(Change(scale, tuple(each["name"] for each in layers)), device["device"])
        live.append(outcome.live)
        held.append(outcome.held)
        passes, step = device["passes_ns"] / 1e9, device["step_ns"] / 1e9
        model = step_model.with_free_steps(
            step_model.from_traces(max(0.0, step - passes), passes, count), run.free_steps(count)
        )
        load = Load(count, count * scale, count * scale)
        steps.append(model.seconds(load, sum(each["forward_ns"] for each in layers) / 1e9))
    return {"live_bytes": live, "held_bytes": held, "step_seconds": max(steps)}
