"""Seconds of a step, from what was traced and from the steps that ran untraced behind it. Pure.

    step = rest + micro-batches x (fixed + size x growing) + what recomputed and offloaded layers cost

Where the size is the length of sequences, attention adds a part that grows with its square, and nothing is fixed: so
long a sequence keeps the device busy. A size is a multiple of the largest traced micro-batch. Iterations are slower
while they are traced: where some ran behind the trace (rank00000.steps.json), theirs are the times of passes, and the
trace tells only what is in them. Where the device was watched in some of them, of several sizes, passes are
device_model.py's. Whatever else a machine does makes steps longer and none shorter, and so does an evaluation between
two: a quarter of the steps lie below the line that is taken (terms.line).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from stalloc.tools.fitting import device_model
from stalloc.tools.fitting.device_model import DeviceModel, WatchedStep
from stalloc.tools.fitting.terms import NOTHING, Terms, are_one, line
from stalloc.tools.fitting.work import Load, load_of

_LARGER = 1 + 1e-3  # than another size
_BY_HOST = 0.5  # of a pass is as long whatever its size: the host cannot keep the device busy


@dataclasses.dataclass(frozen=True)
class FreeStep:
    """One that was not traced: seconds, micro-batches, their sizes together, and one by one where they are known.
    `rows`: of each micro-batch, over those of the largest traced one."""

    seconds: float
    count: int
    size: float
    sizes: tuple[float, ...] = ()
    rows: float = 1.0

    @property
    def load(self) -> Load:
        return load_of(self.sizes or (self.size / self.count,) * self.count, self.rows)


@dataclasses.dataclass(frozen=True)
class StepModel:
    rest: float  # seconds of a step that are in no micro-batch
    fixed: float  # of a micro-batch of any size
    growing: float  # of a micro-batch of size 1
    traced_passes: float  # of all micro-batches of a step, while it was traced
    square: float = 0.0  # of a micro-batch of size 1, growing with the square of its size
    known: float | None = None  # the host bounds what was traced: of micro-batches above this size too little is known
    device: DeviceModel | None = None  # where it is known, it is what tells how long passes are

    def passes(self, load: Load, again: Terms = NOTHING) -> float:
        """All micro-batches of a step. `again`: of what is recomputed, where the device is known."""
        if self.device is not None:
            return max(0.0, self.device.seconds(load, again) - self.rest * load.count / self.device.count)
        return load.count * self.fixed + load.size * self.growing + load.square * self.square

    def seconds(self, load: Load, growing_cost: float = 0.0, fixed_cost: float = 0.0, again: Terms = NOTHING) -> float:
        """A step. `growing_cost`: of a traced step, growing as passes do; `fixed_cost`: of this one."""
        passes = self.passes(load, again)
        slower = passes / self.traced_passes if self.traced_passes > 0 else 0.0
        return self.rest + passes + growing_cost * slower + fixed_cost

    def at_least(self, load: Load) -> bool:
        """Whether a step may take longer than `seconds` says: the device may be what bounds it."""
        return self.known is not None and load.size > self.known * load.count * _LARGER


def from_traces(rest: float, passes: float, count: int, beside: float | None = None, ratio: float = 0.0) -> StepModel:
    """Seconds of the traced passes of a step with `count` micro-batches; `beside`: with micro-batches `ratio` times as
    large."""
    each = passes / count
    if beside is None:
        return StepModel(rest, 0.0, each, passes)
    growing = min(each, max(0.0, (beside / count - each) / (ratio - 1)))
    return StepModel(rest, each - growing, growing, passes)


def with_free_steps(
    model: StepModel, steps: Sequence[FreeStep], of_length: bool = False, watched: Sequence[WatchedStep] = ()
) -> StepModel:
    """As long as steps were untraced, by those with as many micro-batches as most. As it is without any. `of_length`:
    sizes are lengths of sequences. `watched`: where the device was watched in steps of several sizes, that counts."""
    steps = [step for step in steps if step.size > 0]
    if not steps:
        return model
    device = device_model.from_steps(watched, [(step.seconds, step.load) for step in steps])
    if device is not None:
        return StepModel(min(model.rest, device.seconds(watched[0].load)), 0.0, 0.0, model.traced_passes, device=device)
    count = statistics.mode(step.count for step in steps)
    sizes = [step.size for step in steps if step.count == count]
    seconds = [step.seconds for step in steps if step.count == count]
    mean = statistics.fmean(sizes)
    if are_one(sizes):  # what is in a step keeps its share
        before = model.seconds(Load(count, mean, mean * mean / count))
        slower = line(sizes, seconds, flat=True)[0] / before if before > 0 else 1.0
        return StepModel(model.rest * slower, model.fixed * slower, model.growing * slower, model.traced_passes)
    if of_length:
        return _of_length(model, count, sizes, seconds)
    always, growing = line(sizes, seconds)
    rest = min(model.rest, always)
    largest = max(sizes)
    by_host = always - rest > _BY_HOST * (always - rest + growing * largest)
    known = largest / count if by_host else None
    return StepModel(rest, (always - rest) / count, growing, model.traced_passes, known=known)


def _of_length(model: StepModel, count: int, sizes: list[float], seconds: list[float]) -> StepModel:
    """b x size + c x size^2, by relative errors; neither is below 0."""
    each = [size / count for size in sizes]
    speeds = [max(0.0, second - model.rest) / count / size for second, size in zip(seconds, each)]  # b + c x size
    growing, square = line(each, speeds)
    return StepModel(model.rest, 0.0, growing, model.traced_passes, square)
