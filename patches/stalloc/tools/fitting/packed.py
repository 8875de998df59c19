"""Whether attention takes the packed rows of a micro-batch for one: by what the device did in steps of two traces with
different numbers of rows. Pure."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from stalloc.tools.fitting.device_model import WatchedStep
from stalloc.tools.fitting.terms import are_one, least_squares, terms_of


def are_together(together: Sequence[WatchedStep], apart: Sequence[WatchedStep]) -> bool:
    """The same steps, whose loads have the squares of micro-batches' tokens, and those of their rows' lengths: which of
    both explains better how long those kernels took that grow faster than tokens. False where nothing tells."""
    kernels = [_kernels(step) for step in together]
    if are_one([step.load.size for step in together]):
        return False
    errors = [0.0, 0.0]
    for name in set.intersection(*map(set, kernels)):
        seconds = [busy[name] for busy in kernels]
        if terms_of(seconds, [step.load for step in together])[2] > 0:
            for i, steps in enumerate((together, apart)):
                errors[i] += _error(seconds, steps)
    return errors[0] < errors[1]


def _kernels(step: WatchedStep) -> dict[str, float]:
    """Seconds of the whole step by the kernel's name."""
    found: dict[str, float] = collections.defaultdict(float)
    for part in step.busy:
        for name, (seconds, _) in part.items():
            found[name] += seconds
    return found


def _error(seconds: Sequence[float], steps: Sequence[WatchedStep]) -> float:
    points = [(step.load.size, step.load.square) for step in steps]
    growing, square = least_squares(points, seconds)
    return sum((second - growing * x - square * y) ** 2 for second, (x, y) in zip(seconds, points))
