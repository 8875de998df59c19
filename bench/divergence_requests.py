"""Cases that change single requests: more of them, fewer, of another size or order; blocks freed early or late."""

from __future__ import annotations

import dataclasses
import gc
import random
from typing import TYPE_CHECKING, Any

import torch
from divergence_case import AT, MIDDLE, Case, Place
from torch import Tensor

if TYPE_CHECKING:
    from divergence_train import Loop

KEEP = 3  # iterations for which late frees keep their blocks
UNPLANNED_BYTES = 123_457  # a size that no model here asks for


def _from_middle_on(place: Place) -> bool:
    """The middle of the disturbed iteration and of all later ones."""
    return place.iteration >= AT and dataclasses.replace(place, iteration=AT) == MIDDLE


class Inserted(Case):
    """More requests than planned, at one place; freed at once or at the iteration's end."""

    def __init__(self, text: str, like_output: bool, count: int = 1, kept: bool = False, every: bool = False) -> None:
        self.text = text
        self.floor = 0.99 if count == 1 else None
        self.settles = not every
        self.like_output, self.count, self.kept, self.every = like_output, count, kept, every
        self.held: list[Tensor] = []

    def after_block(self, loop: Loop, place: Place, output: Tensor) -> None:
        if not (_from_middle_on(place) if self.every else place == MIDDLE):
            return
        for _ in range(self.count):
            extra = torch.empty_like(output) if self.like_output else torch.empty(UNPLANNED_BYTES, dtype=torch.uint8)
            loop.guard(extra)
            if self.kept:
                self.held.append(extra)
        loop.disturbed()

    def end(self, loop: Loop, iteration: int) -> None:
        for tensor in self.held:
            loop.release(tensor)
        self.held.clear()


class Dropped(Case):
    """The probes of `count` blocks in a row are left out."""

    def __init__(self, text: str, count: int = 1) -> None:
        self.text = text
        self.floor = 0.99 if count == 1 else None
        self.count = count

    def probe_rows(self, place: Place, rows: int) -> int:
        return 0 if self._here(place) else rows

    def after_probes(self, loop: Loop, place: Place) -> None:
        if self._here(place):
            self.count -= 1
            loop.disturbed()

    def _here(self, place: Place) -> bool:
        return place.iteration == AT and (place.micro, place.layer) >= (MIDDLE.micro, MIDDLE.layer) and self.count > 0


class Resized(Case):
    """One probe looks at half of what it is planned for."""

    text = "one request resized"
    floor = 0.99

    def probe_rows(self, place: Place, rows: int) -> int:
        return rows // 2 if place == MIDDLE else rows

    def after_probes(self, loop: Loop, place: Place) -> None:
        if place == MIDDLE:
            loop.disturbed()


class Reordered(Case):
    """The two probes of one block, or of every block from then on, come in the other order."""

    def __init__(self, text: str, every: bool = False) -> None:
        self.text, self.every, self.settles = text, every, not every

    def probes_swapped(self, place: Place) -> bool:
        return place.iteration >= AT if self.every else place == MIDDLE

    def after_probes(self, loop: Loop, place: Place) -> None:
        if place == MIDDLE:
            loop.disturbed()


class FreedLate(Case):
    """A block's output lives on for some iterations, keyed, and is checked when it goes."""

    settles = False

    def __init__(self, text: str, count: int) -> None:
        self.text, self.count = text, count
        self.kept: list[Tensor] = []

    def after_block(self, loop: Loop, place: Place, output: Tensor) -> None:
        if place.iteration != AT or len(self.kept) >= self.count:
            return
        self.kept.append(output.detach() + 1.0)  # the inserted request takes the place of the probe's
        loop.guard(self.kept[-1])
        loop.disturbed()

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration != AT + KEEP:
            return
        for tensor in self.kept:
            loop.release(tensor)
        self.kept.clear()


class ProbesKept(Case):
    """All probes of an iteration live on for some iterations."""

    text = "all probes of an iteration kept for three more"
    settles = False

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def after_forward(self, loop: Loop, place: Place, loss: Tensor) -> None:
        if place.iteration != AT:
            return
        for tensor in loop.probes:
            loop.guard(tensor)
            self.kept.append(tensor)
        loop.disturbed()

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration != AT + KEEP:
            return
        for tensor in self.kept:
            loop.release(tensor)
        self.kept.clear()


class FreedEarly(Case):
    """The probes of one micro-batch go before its backward pass instead of after it."""

    text = "probes of an iteration freed early"

    def after_forward(self, loop: Loop, place: Place, loss: Tensor) -> None:
        if place.iteration == AT:
            loop.probes.clear()
            loop.disturbed()


class GraphKept(Case):
    """The losses of an iteration keep their graphs, hence all activations, for some iterations."""

    text = "autograd graph of one micro-batch kept for three iterations"
    settles = False

    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def after_forward(self, loop: Loop, place: Place, loss: Tensor) -> None:
        if place.iteration != AT or place.micro != 1:
            return
        loop.retain_graph = True
        self.losses.append(loss)
        loop.disturbed()

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration == AT + KEEP:
            self.losses.clear()


class Cycles(Case):
    """Reference cycles hold tensors until the collector runs, at random times."""

    text = "cycles that hold tensors, gc at random times"
    settles = False

    def __init__(self) -> None:
        self.random = random.Random(5)

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration == AT:
            gc.disable()

    def after_block(self, loop: Loop, place: Place, output: Tensor) -> None:
        if place.iteration < AT:
            return
        if self.random.random() < 0.2:
            cycle: list[Any] = [output.detach().clone()]
            cycle.append(cycle)
        if self.random.random() < 0.15:
            gc.collect()
        if place.iteration == AT:
            loop.disturbed()
