"""Seconds of a step from what the device did in steps of several sizes (rank00000.steps.json). Pure.

A step is a row of parts, each as long as the host takes for it or the device, whichever is longer. What the host takes
is the same whatever the size; what the device takes is the sum over its kernels, by name:

    always + size x growing      or, where twice the size takes more than twice as long,
    size x growing + square x c  attention, which grows with the square of the rows' length
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.fitting.work import Load

_SPREAD = 1e-3  # of the squared mean: sizes that are one
_MORE = 1.25  # times as much as in proportion: it grows with the square
_AS_OFTEN = 0.5  # of the launches of a kernel in another step: then it does the same in both

Terms = tuple[float, float, float]  # of a micro-batch: always, by its size, by its square


@dataclasses.dataclass(frozen=True)
class WatchedStep:
    """By part: its seconds, and by the kernel's name how long the device was busy with how many."""

    load: Load
    seconds: tuple[float, ...]
    busy: tuple[dict[str, tuple[float, int]], ...]

    @staticmethod
    def of(told: dict[str, Any], load: Load) -> WatchedStep:
        """As `stalloc._marking._device_work` leaves it. KeyError, TypeError, ValueError: it is something else."""
        names, parts = told["kernels"], told["parts"]
        return WatchedStep(
            load,
            tuple(float(part["seconds"]) for part in parts),
            tuple(
                {names[int(i)]: (float(second), int(count)) for i, (second, count) in part["busy"].items()}
                for part in parts
            ),
        )


@dataclasses.dataclass(frozen=True)
class DeviceModel:
    count: float  # micro-batches of the steps that were watched
    host: tuple[float, ...]  # seconds of each part
    device: tuple[Terms, ...]

    def seconds(self, load: Load) -> float:
        """A step. With more micro-batches the host takes as much longer."""
        often = load.count / self.count
        return sum(
            max(host * often, sum(map(_product, terms, (load.count, load.size, load.square))))
            for host, terms in zip(self.host, self.device)
        )


def from_steps(steps: Sequence[WatchedStep], fastest: float) -> Optional[DeviceModel]:
    """None where their sizes are one, or none was watched. `fastest`: seconds of a step that nothing watched, which
    makes the host slower."""
    parts = min((len(step.seconds) for step in steps), default=0)
    alike = [step for step in steps if len(step.seconds) == parts and step.load.size > 0]
    sizes = [step.load.size for step in alike]
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    if sum((size - mean) ** 2 for size in sizes) < _SPREAD * mean * mean * len(sizes) or not alike:
        return None
    host = [min(step.seconds[part] for step in alike) for part in range(parts)]
    slower = max(1.0, sum(host) / fastest) if fastest > 0 else 1.0
    loads = [step.load for step in alike]
    return DeviceModel(
        alike[0].load.count,
        tuple(second / slower for second in host),
        tuple(_terms_of_part([step.busy[part] for step in alike], loads, mean) for part in range(parts)),
    )


def _terms_of_part(busy: list[dict[str, tuple[float, int]]], loads: list[Load], mean: float) -> Terms:
    """Kernels that one step has and another has not are counted together: which one multiplies matrices depends on
    their size."""
    apart = [name for name in sorted(set.intersection(*map(set, busy))) if _as_often([step[name][1] for step in busy])]
    kinds = [[step[name][0] for step in busy] for name in apart]
    kinds.append([sum(second for name, (second, _) in step.items() if name not in apart) for step in busy])
    found = [_terms(seconds, loads, mean) for seconds in kinds]
    return sum(each[0] for each in found), sum(each[1] for each in found), sum(each[2] for each in found)


def _as_often(launches: list[int]) -> bool:
    return min(launches) >= _AS_OFTEN * max(launches)


def _terms(seconds: list[float], loads: list[Load], mean: float) -> Terms:
    large = [i for i, load in enumerate(loads) if load.size > mean]
    small = [i for i, load in enumerate(loads) if load.size <= mean]
    by_size = [sum(seconds[i] for i in chosen) / sum(loads[i].size for i in chosen) for chosen in (small, large)]
    if by_size[1] > by_size[0] * _MORE:
        growing, square = least_squares([(load.size, load.square) for load in loads], seconds)
        return 0.0, growing, square
    always, growing = least_squares([(load.count, load.size) for load in loads], seconds)
    return always, growing, 0.0


def least_squares(points: Sequence[tuple[float, float]], values: Sequence[float]) -> tuple[float, float]:
    """Two factors, neither below 0, of x and y. REQUIRES: a point with x and y above 0."""
    xx, xy, yy = (sum(a[i] * a[j] for a in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    xv, yv = (sum(a[i] * value for a, value in zip(points, values)) for i in (0, 1))
    determinant = xx * yy - xy * xy
    if determinant > 0:
        both = (xv * yy - yv * xy) / determinant, (yv * xx - xv * xy) / determinant
        if min(both) >= 0:
            return both
    # With one of them alone, the better one: xx x^2 - 2 x xv is its error.
    return (xv / xx, 0.0) if xv * xv / xx >= yv * yv / yy else (0.0, yv / yy)


def _product(factor: float, term: float) -> float:
    return factor * term
