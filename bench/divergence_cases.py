"""The ways in which a run of bench/divergence_train.py departs from its plan. One class a kind, one instance a case.

A case is told where the loop is and changes what happens there. It calls `loop.disturbed()` right after its last
disturbance of an iteration: what is asked for from there to the next iteration is "the rest" of that iteration.
"""

from __future__ import annotations

import dataclasses
import gc
import io
import random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from divergence_train import Loop

AT = 6  # the iteration that is disturbed; the first five show that the plan holds
KEEP = 3  # iterations for which late frees keep their blocks
UNPLANNED_BYTES = 123_457  # a size that no model here asks for


@dataclasses.dataclass(frozen=True)
class Place:
    """A point in the loop: right after a block's forward pass."""

    iteration: int
    micro: int
    layer: int


MIDDLE = Place(AT, 1, 1)


def _from_middle_on(place: Place) -> bool:
    """The middle of the disturbed iteration and of all later ones."""
    return place.iteration >= AT and dataclasses.replace(place, iteration=AT) == MIDDLE


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


class SkippedSteps(Case):
    """The optimizer does not step, as after an overflow in fp16."""

    def __init__(self, text: str, iterations: tuple[int, ...]) -> None:
        self.text, self.iterations, self.settles = text, iterations, iterations == (AT,)

    def steps(self, loop: Loop, iteration: int) -> bool:
        if iteration not in self.iterations:
            return True
        loop.disturbed()
        return False


class Evaluation(Case):
    """An evaluation between two micro-batches, inside a fence or not."""

    def __init__(self, text: str, fenced: bool, batches: int = 2) -> None:
        self.text, self.fenced, self.batches = text, fenced, batches

    def before_micro_batch(self, loop: Loop, place: Place) -> None:
        if place.iteration != AT or place.micro != 2:
            return
        with loop.fence("eval", self.fenced), torch.no_grad():
            for _ in range(self.batches):
                loop.losses.append(loop.model(next(loop.batches)).item())
        loop.disturbed()


class Checkpoint(Case):
    """A checkpoint is written between two micro-batches, inside a fence or not."""

    def __init__(self, text: str, fenced: bool) -> None:
        self.text, self.fenced = text, fenced

    def before_micro_batch(self, loop: Loop, place: Place) -> None:
        if place.iteration != AT or place.micro != 2:
            return
        with loop.fence("save", self.fenced):
            weights = {name: value.clone() for name, value in loop.model.state_dict().items()}
            file = io.BytesIO()
            torch.save({"model": weights, "optimizer": loop.optimizer.adamw.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file)
            if not all(torch.equal(saved["model"][name], value) for name, value in loop.model.state_dict().items()):
                raise RuntimeError("a checkpoint does not hold the weights")
        loop.disturbed()


class BatchSize(Case):
    """Another batch size, in one iteration or from it on."""

    def __init__(self, text: str, size: int, last: int) -> None:
        self.text, self.size, self.last, self.settles = text, size, last, last == AT
        self.usual = 0

    def begin(self, loop: Loop, iteration: int) -> None:
        self.usual = self.usual or loop.config.micro_batch
        loop.config.micro_batch = self.size if AT <= iteration <= self.last else self.usual
        if iteration == AT:
            loop.disturbed()


class OneBatchSize(Case):
    """One micro-batch of another size: the last of a data set."""

    text = "one micro-batch of another size"

    def before_micro_batch(self, loop: Loop, place: Place) -> None:
        if place.iteration != AT:
            return
        if place.micro == 1:
            self.usual = loop.config.micro_batch
            loop.config.micro_batch = self.usual - 1
        elif place.micro == 2:
            loop.config.micro_batch = self.usual
            loop.disturbed()


class Accumulation(Case):
    """Another number of micro-batches, in one iteration or from it on."""

    def __init__(self, text: str, change: int, last: int) -> None:
        self.text, self.change, self.last, self.settles = text, change, last, last == AT

    def micro_batches(self, iteration: int, usual: int) -> int:
        return usual + (self.change if AT <= iteration <= self.last else 0)

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration == AT:
            loop.disturbed()


class Raised(Case):
    """An exception in the middle of a pass, which the loop catches; it gives the iteration up, or tries again."""

    def __init__(self, text: str, backward: bool) -> None:
        self.text, self.backward = text, backward
        self.done = False

    def after_block(self, loop: Loop, place: Place, output: Tensor) -> None:
        if place != MIDDLE or self.done:
            return
        self.done = True
        if not self.backward:
            raise InterruptionError

        def interrupt(gradient: Tensor) -> Tensor:
            raise InterruptionError

        output.register_hook(interrupt)


class SecondModel(Case):
    """A second model is made in the middle of the run and trained along with the first."""

    def __init__(self, text: str, last: int) -> None:
        self.text, self.last, self.settles = text, last, last == AT
        self.other: Any = None

    def before_micro_batch(self, loop: Loop, place: Place) -> None:
        if not AT <= place.iteration <= self.last or place.micro != 1:
            return
        if self.other is None:
            self.other = loop.second_model()
        model, optimizer = self.other
        loss = model(next(loop.batches))
        loss.backward()
        optimizer.step()
        loop.losses.append(loss.item())
        if place.iteration == self.last:
            self.other = None
        del model, optimizer, loss
        loop.disturbed()


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


FOREVER = 1 << 30

# By name: how to make the case.
CASES: dict[str, Any] = {
    "none": Undisturbed,
    "inserted-unknown-size": lambda: Inserted("one more request, of an unknown size", like_output=False),
    "inserted-known-size": lambda: Inserted("one more request, of an activation's size", like_output=True),
    "inserted-kept": lambda: Inserted("the same, freed at the iteration's end", like_output=True, kept=True),
    "inserted-every-iteration": lambda: Inserted("one more in every iteration", like_output=True, every=True),
    "inserted-300": lambda: Inserted("300 more in a row", like_output=True, count=300),
    "dropped": lambda: Dropped("the two requests of one probe left out"),
    "dropped-4": lambda: Dropped("those of four probes in a row", count=4),
    "resized": Resized,
    "reordered": lambda: Reordered("two requests change places"),
    "reordered-from": lambda: Reordered("two of every layer change places from then on", every=True),
    "freed-late": lambda: FreedLate("one request more, freed three iterations later", count=1),
    "freed-late-8": lambda: FreedLate("eight more, freed three iterations later", count=8),
    "probes-kept": ProbesKept,
    "freed-early": FreedEarly,
    "graph-kept": GraphKept,
    "skipped-step": lambda: SkippedSteps("optimizer step skipped", (AT,)),
    "skipped-steps": lambda: SkippedSteps("optimizer steps skipped, three in a row", (AT, AT + 1, AT + 2)),
    "evaluation-marked": lambda: Evaluation("evaluation in the middle, in a fence", fenced=True),
    "evaluation-unmarked": lambda: Evaluation("evaluation in the middle, unmarked", fenced=False),
    "checkpoint-marked": lambda: Checkpoint("checkpoint in the middle, in a fence", fenced=True),
    "checkpoint-unmarked": lambda: Checkpoint("checkpoint in the middle, unmarked", fenced=False),
    "micro-batch-size": OneBatchSize,
    "batch-size-once": lambda: BatchSize("another batch size for one iteration", 3, AT),
    "batch-size-from": lambda: BatchSize("another batch size from then on", 3, FOREVER),
    "fewer-micro-batches": lambda: Accumulation("one micro-batch less for one iteration", -1, AT),
    "more-micro-batches": lambda: Accumulation("one micro-batch more for one iteration", 1, AT),
    "more-micro-batches-from": lambda: Accumulation("one micro-batch more from then on", 1, FOREVER),
    "raised-in-forward": lambda: Raised("exception in a forward pass, caught", backward=False),
    "raised-in-backward": lambda: Raised("exception in a backward pass, caught", backward=True),
    "second-model-once": lambda: SecondModel("a second model trained in one iteration", AT),
    "second-model-from": lambda: SecondModel("a second model trained along from then on", FOREVER),
    "gc": Cycles,
}
