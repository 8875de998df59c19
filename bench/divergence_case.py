"""What a case of the divergence matrix may change of a run of bench/divergence_train.py, and where.

A case is told where the loop is and changes what happens there. It calls `loop.disturbed()` right after its last
disturbance of an iteration: what is asked for from there to the next iteration is "the rest" of that iteration.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from divergence_train import Loop

AT = 6  # the iteration that is disturbed; the first five show that the plan holds


@dataclasses.dataclass(frozen=True)
class Place:
    """A point in the loop: right after a block's forward pass."""

    iteration: int
    micro: int
    layer: int


MIDDLE = Place(AT, 1, 1)


class InterruptionError(Exception):
    """What a loop catches: a bad batch, a lost worker."""


class Case:
    """What a case may change; here, nothing.

    `floor`: the least share of planned requests served in the rest of the disturbed iteration. `settles`: the next
    iteration is as planned again.
    """

    floor: float | None = None
    settles = True
    text = "no disturbance"

    def iteration_marks(self, iteration: int) -> int:
        """How often the iteration is marked."""
        return 1

    def begin(self, loop: Loop, iteration: int) -> None:
        """Right after the iteration's mark."""

    def micro_batches(self, iteration: int, usual: int) -> int:
        return usual

    def before_micro_batch(self, loop: Loop, place: Place) -> None:
        """Before a forward pass; `place.layer` is 0."""

    def after_block(self, loop: Loop, place: Place, output: Tensor) -> None:
        """After a block's (first) forward pass, before the loop takes its probes."""

    def after_probes(self, loop: Loop, place: Place) -> None:
        """After the loop took the block's probes."""

    def probe_rows(self, place: Place, rows: int) -> int:
        """How many rows of a block's output are probed; 0: the probe is left out."""
        return rows

    def probes_swapped(self, place: Place) -> bool:
        return False

    def after_forward(self, loop: Loop, place: Place, loss: Tensor) -> None:
        """Between forward and backward pass."""

    def steps(self, loop: Loop, iteration: int) -> bool:
        """Whether the optimizer steps."""
        return True

    def end(self, loop: Loop, iteration: int) -> None:
        """After the optimizer."""


class Undisturbed(Case):
    """What the others are compared with: counted from where most of them are disturbed."""

    def after_probes(self, loop: Loop, place: Place) -> None:
        if place == MIDDLE:
            loop.disturbed()
