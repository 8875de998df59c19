"""Seconds of a step from what the device did in steps of several sizes (rank00000.steps.json). Pure.

A micro-batch is a row of parts, each as long as the host takes for it or the device, whichever is longer: the host is
ahead by no more than a part, so that it bounds short micro-batches between long ones. What the host takes is the same
whatever the size; what the device takes is the sum over its kernels, by name (terms.py). One that communicates waits
for other ranks, too, which makes it longer and never shorter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.fitting.terms import NOTHING, Terms, are_one, line, terms_of, total
from stalloc.fitting.work import Load

_AS_OFTEN = 0.5  # of the launches of a kernel in another step: then it does the same in both
_COMMUNICATES = "nccl"


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

    def seconds(self, load: Load, again: Terms = NOTHING) -> float:
        """A step. `again`: seconds of what is recomputed, which both take, in any part."""
        share = 1 / len(self.host)
        each = tuple(term * share for term in again)
        host = [second / self.count + each[0] for second in self.host]
        device = [(always + each[0], growing + each[1], square + each[2]) for always, growing, square in self.device]
        return sum(
            often * sum(max(waits, a + size * g + square * c) for waits, (a, g, c) in zip(host, device))
            for often, size, square in load.micro_batches()
        )


def from_steps(steps: Sequence[WatchedStep], fastest: float) -> Optional[DeviceModel]:
    """None where their sizes are one, or none was watched. `fastest`: seconds of a step that nothing watched, which
    makes the host slower."""
    parts = min((len(step.seconds) for step in steps), default=0)
    alike = [step for step in steps if len(step.seconds) == parts and step.load.size > 0]
    if are_one([step.load.size for step in alike]):
        return None
    host = [min(step.seconds[part] for step in alike) for part in range(parts)]
    slower = max(1.0, sum(host) / fastest) if fastest > 0 else 1.0
    loads = [step.load for step in alike]
    return DeviceModel(
        alike[0].load.count,
        tuple(second / slower for second in host),
        tuple(_terms_of_part([step.busy[part] for step in alike], loads) for part in range(parts)),
    )


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
        + [_least([step[name][0] for step in busy], loads) for name in communicate]
    )


def _least(seconds: list[float], loads: list[Load]) -> Terms:
    always, growing = line([load.size for load in loads], seconds)
    return always * len(loads) / sum(load.count for load in loads), growing, 0.0


def _as_often(launches: list[int]) -> bool:
    return min(launches) >= _AS_OFTEN * max(launches)
