"""Seconds of a step from what the device did in steps of several sizes (rank00000.steps.json). Pure.

A micro-batch is a row of parts, each as long as the host takes for it or the device, whichever is longer: the host is
ahead by no more than a part, so that it bounds short micro-batches between long ones. What the host takes is taken to
be the same whatever the size; what the device takes is the sum over its kernels, by name (terms.py). One that
communicates waits for other ranks, too, which makes it longer and never shorter.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.tools.fitting.terms import NOTHING, Terms, are_one, least_terms, terms_of, total
from stalloc.tools.fitting.work import Load

_AS_OFTEN = 0.5  # of the launches of a kernel in another step: then it does the same in both
_COMMUNICATES = "nccl"
_SLOWER = (0.25, 4.0)  # than while it is watched
_HALVES = 16
_NEAR = 0.03  # what is predicted this well is known
_BY_HOST = 0.5  # of a step


@dataclasses.dataclass(frozen=True)
class WatchedStep:
    """By part: its seconds, and by the kernel's name how long the device was busy with how many."""

    load: Load
    seconds: tuple[float, ...]
    busy: tuple[dict[str, tuple[float, int]], ...]

    @staticmethod
    def of(told: dict[str, Any], load: Load) -> WatchedStep:
        """As `stalloc.train.marking.device_work` leaves it. KeyError, TypeError, ValueError: it is something else."""
        names, parts = told["kernels"], told["parts"]
        return WatchedStep(
            load,
            tuple(float(part["seconds"]) for part in parts),
            tuple(
                {names[int(i)]: (float(second), int(count)) for i, (second, count) in part["busy"].items()}
                for part in parts
            ),
        )

    def least(self, others: Sequence[WatchedStep]) -> WatchedStep:
        """Each kernel took as long as on the rank where it took least: others waited, or had lower clocks.
        `others`: what other ranks did in this step; one that did not do the same says nothing."""
        own = self._whole()
        alike = [other for other in others if self._is_like(other)]
        found = [own, *(other._whole() for other in alike)]
        shares = {name: min(each[name][0] for each in found) / (whole or 1.0) for name, (whole, _) in own.items()}
        return WatchedStep(
            self.load,
            tuple(min(part) for part in zip(self.seconds, *(other.seconds for other in alike))),
            tuple(
                {name: (second * shares[name], count) for name, (second, count) in part.items()} for part in self.busy
            ),
        )

    def _is_like(self, other: WatchedStep) -> bool:
        if (self.load, len(self.seconds)) != (other.load, len(other.seconds)):
            return False
        launches, its = ({name: count for name, (_, count) in each._whole().items()} for each in (self, other))
        return launches == its

    def _whole(self) -> dict[str, tuple[float, int]]:
        """Of all parts."""
        found: dict[str, tuple[float, int]] = {}
        for part in self.busy:
            for name, (second, count) in part.items():
                seconds, launches = found.get(name, (0.0, 0))
                found[name] = seconds + second, launches + count
        return found


@dataclasses.dataclass(frozen=True)
class DeviceModel:
    count: float  # micro-batches of the steps that were watched
    host: tuple[float, ...]  # seconds of each part
    device: tuple[Terms, ...]

    def seconds(self, load: Load, again: Terms = NOTHING) -> float:
        """A step. `again`: seconds of what is recomputed: where the device has most to do, there are the passes."""
        return sum(often * self._micro_batch(size, square, again) for often, size, square in load.micro_batches())

    def slower(self, times: float) -> DeviceModel:
        """Its host."""
        return dataclasses.replace(self, host=tuple(second * times for second in self.host))

    def host_share(self, load: Load) -> float:
        """Of a step, 0 to 1: of the parts that the host bounds."""
        bound = sum(
            often * waits / self.count
            for often, size, square in load.micro_batches()
            for waits, terms in zip(self.host, self.device)
            if waits / self.count > _at(terms, size, square)
        )
        return bound / self.seconds(load)

    def _micro_batch(self, size: float, square: float, again: Terms) -> float:
        """What is always there of `again` is the host's, too."""
        device = [_at(terms, size, square) for terms in self.device]
        whole = sum(device)
        if whole <= 0:
            return sum(self.host) / self.count + again[0]
        more = _at(again, size, square) / whole
        return sum(
            max(waits / self.count + again[0] * works / whole, works * (1 + more))
            for waits, works in zip(self.host, device)
        )


def from_steps(steps: Sequence[WatchedStep], free: Sequence[tuple[float, Load]]) -> Optional[DeviceModel]:
    """None where their sizes are one, or none was watched. `free`: seconds of steps that nothing watched, and what they
    had to do. Watching makes the host slower, chance a part of it faster: it is as slow as half of these tell; as the
    large ones do where it bounds them."""
    parts = min((len(step.seconds) for step in steps), default=0)
    alike = [step for step in steps if len(step.seconds) == parts and step.load.size > 0]
    if are_one([step.load.size for step in alike]):
        return None
    loads = [step.load for step in alike]
    found = DeviceModel(
        alike[0].load.count,
        tuple(min(step.seconds[part] for step in alike) for part in range(parts)),
        tuple(_terms_of_part([step.busy[part] for step in alike], loads) for part in range(parts)),
    )
    return found.slower(_slower(found, _telling(found, free)))


def _telling(model: DeviceModel, free: Sequence[tuple[float, Load]]) -> Sequence[tuple[float, Load]]:
    """The steps that tell how slow the host is: those with large micro-batches where it bounds them, for libraries
    choose a kernel for each new shape, and these have more shapes; else all."""
    sizes = [load.size / load.count for _, load in free]
    mean = statistics.fmean(sizes) if sizes else 0.0
    large = [step for step, size in zip(free, sizes) if size > mean]
    by_host = large and statistics.median(model.host_share(load) for _, load in large) > _BY_HOST
    return large if by_host else free


def _slower(model: DeviceModel, free: Sequence[tuple[float, Load]]) -> float:
    """So many times as slow is the host that half of the steps are shorter; by halves, for a host that is slower makes
    no step shorter. Steps that are about as long as they are say nothing of the host."""
    if not free or abs(statistics.median(seconds / model.seconds(load) for seconds, load in free) - 1) < _NEAR:
        return 1.0
    least, most = _SLOWER
    for _ in range(_HALVES):
        middle = math.sqrt(least * most)
        other = model.slower(middle)
        if statistics.median(seconds - other.seconds(load) for seconds, load in free) > 0:
            least = middle
        else:
            most = middle
    return math.sqrt(least * most)


def _terms_of_part(busy: list[dict[str, tuple[float, int]]], loads: list[Load]) -> Terms:
    """Kernels that one step has and another has not are counted together: which one multiplies matrices depends on
    their size."""
    shared = set.intersection(*map(set, busy))
    apart = [name for name in sorted(shared) if _as_often([step[name][1] for step in busy])]
    communicate = [name for name in apart if _COMMUNICATES in name.lower()]
    kinds = [[step[name][0] for step in busy] for name in apart if name not in communicate]
    kinds.append([sum(second for name, (second, _) in step.items() if name not in apart) for step in busy])
    return total(
        [terms_of(seconds, loads) for seconds in kinds]
        + [least_terms([step[name][0] for step in busy], loads) for name in communicate]
    )


def _as_often(launches: list[int]) -> bool:
    return min(launches) >= _AS_OFTEN * max(launches)


def _at(terms: Terms, size: float, square: float) -> float:
    return terms[0] + terms[1] * size + terms[2] * square
