"""What `stalloc fit` predicts of a workload with larger micro-batches, and with some of its layers recomputed, from
traces of the same with smaller ones (compare.py --modes trace --layers). Bytes and seconds."""

from __future__ import annotations

import dataclasses
import re
import statistics
import sys
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "patches"))

from stalloc.tools.fitting.replayed import Change, Planner, TracedRun
from stalloc.tools.fitting.work import Work
from stalloc.tools.report import collect


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced run: its directory, its micro-batch, and the same of another one with as many micro-batches a step."""

    directory: Path
    micro_batch: int
    second: Optional[Path] = None
    second_micro_batch: int = 0

    def run(self, trace: Path) -> TracedRun:
        """Of the rank with this trace. CollectError: the other run has no such rank."""
        if self.second is None:
            return TracedRun(trace)
        others = [files.trace for files in collect.find_ranks(self.second)]
        other = next((each for each in others if each.name == trace.name), None)
        if other is None:
            raise collect.CollectError(f"{self.second}: expected {trace.name}, as {self.directory} has, found {others}")
        ratio = self.second_micro_batch / self.micro_batch
        return TracedRun(trace, other, ratio, ratio)


def predicted(traced: Traced, micro_batch: int, count: int, recomputed: str) -> dict[str, Any]:
    """The time of all ranks. They wait for each other, so a step of each is the step: the mean of what they report.

    Args:
        traced: what it is predicted from.
        micro_batch: of the run.
        count: of them in a step, as traced.
        recomputed: layers whose names in the trace this regular expression finds; empty: none.
    """
    live, held, steps = [], [], []
    for files in collect.find_ranks(traced.directory):
        run = traced.run(files.trace)
        with Planner(run) as planner:
            device = max(planner.traced()["devices"], key=lambda each: int(each["peak"]))
            layers = [each for each in device["layers"] if recomputed and re.search(recomputed, each["name"])]
            names = tuple(each["name"] for each in layers)
            outcome = planner.outcome(Change(micro_batch / traced.micro_batch, names), device["device"])
            planner.cost(device["device"], count)
            load = Work(traced.micro_batch, count, keeps_accumulation=True).load(micro_batch)
            steps += [each["step_seconds"] for each in planner.seconds(device["device"], [load], names)]
        live.append(outcome.live)
        held.append(outcome.held)
    return {"live_bytes": live, "held_bytes": held, "step_seconds": statistics.fmean(steps)}
