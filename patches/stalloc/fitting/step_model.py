"""Seconds of a step, from what was traced and from the steps that ran untraced behind it. Pure.

    step = rest + micro-batches x (fixed + size x growing) + what recomputed and offloaded layers cost

Where the size is the length of sequences, attention adds a part that grows with its square, and nothing is fixed: so
long a sequence keeps the device busy. A size is a multiple of the largest traced micro-batch. Iterations are slower
while they are traced: where some ran behind the trace (rank00000.steps.json), theirs are the times of passes, and the
trace tells only what is in them.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

_SPREAD = 1e-3  # of the squared mean: sizes that are one
_OUTLIER = 1.6  # times as long as the median for its size: an evaluation, a checkpoint


@dataclasses.dataclass(frozen=True)
class FreeStep:
    """One that was not traced: seconds, micro-batches, and their sizes together."""

    seconds: float
    count: int
    size: float


@dataclasses.dataclass(frozen=True)
class StepModel:
    rest: float  # seconds of a step that are in no micro-batch
    fixed: float  # of a micro-batch of any size
    growing: float  # of a micro-batch of size 1
    traced_passes: float  # of all micro-batches of a step, while it was traced
    square: float = 0.0  # of a micro-batch of size 1, growing with the square of its size

    def passes(self, count: int, size: float) -> float:
        """All micro-batches of a step. `size`: all of them together."""
        return count * self.fixed + size * self.growing + size * size / count * self.square

    def seconds(self, count: int, size: float, growing_cost: float = 0.0, fixed_cost: float = 0.0) -> float:
        """A step. `growing_cost`: of a traced step, growing as passes do; `fixed_cost`: of this one."""
        passes = self.passes(count, size)
        slower = passes / self.traced_passes if self.traced_passes > 0 else 0.0
        return self.rest + passes + growing_cost * slower + fixed_cost


def from_traces(rest: float, passes: float, count: int, beside: float | None = None, ratio: float = 0.0) -> StepModel:
    """Seconds of the traced passes of a step with `count` micro-batches; `beside`: with micro-batches `ratio` times as
    large."""
    each = passes / count
    if beside is None:
        return StepModel(rest, 0.0, each, passes)
    growing = min(each, max(0.0, (beside / count - each) / (ratio - 1)))
    return StepModel(rest, each - growing, growing, passes)


def with_free_steps(model: StepModel, steps: Sequence[FreeStep], of_length: bool = False) -> StepModel:
    """As long as steps were untraced: least squares over those with as many micro-batches as most. As it is without
    any. `of_length`: sizes are lengths of sequences."""
    steps = _usual(steps)
    if not steps:
        return model
    count = statistics.mode(step.count for step in steps)
    steps = [step for step in steps if step.count == count]
    seconds, sizes = [step.seconds for step in steps], [step.size for step in steps]
    before = model.seconds(count, statistics.fmean(sizes))
    mean = statistics.fmean(sizes)
    spread = sum((size - mean) ** 2 for size in sizes)
    if spread < _SPREAD * mean * mean:  # all of one size: what is in a step keeps its share
        slower = statistics.fmean(seconds) / before if before > 0 else 1.0
        return StepModel(model.rest * slower, model.fixed * slower, model.growing * slower, model.traced_passes)
    if of_length:
        return _of_length(model, count, sizes, seconds)
    growing = sum((size - mean) * second for size, second in zip(sizes, seconds)) / spread
    growing = min(max(growing, 0.0), statistics.fmean(seconds) / mean)
    always = statistics.fmean(seconds) - growing * mean
    rest = min(model.rest, always)
    return StepModel(rest, (always - rest) / count, growing, model.traced_passes)


def _of_length(model: StepModel, count: int, sizes: list[float], seconds: list[float]) -> StepModel:
    """b x size + c x size^2, least squares of the relative errors; neither is below 0."""
    each = [size / count for size in sizes]
    left = [max(0.0, second - model.rest) / count for second in seconds]
    speeds = [second / size for second, size in zip(left, each)]  # b + c x size
    size, speed = statistics.fmean(each), statistics.fmean(speeds)
    spread = sum((one - size) ** 2 for one in each)
    square = max(0.0, sum((one - size) * other for one, other in zip(each, speeds)) / spread)
    square = min(square, speed / size)
    return StepModel(model.rest, 0.0, speed - square * size, model.traced_passes, square)


def _usual(steps: Sequence[FreeStep]) -> list[FreeStep]:
    """Without those that something else has made long."""
    speeds = [step.seconds / step.size for step in steps if step.size > 0]
    if len(speeds) < 3:
        return list(steps)
    usual = statistics.median(speeds)
    return [step for step in steps if step.size > 0 and step.seconds / step.size <= _OUTLIER * usual]
