"""Cases that change what the loop does: steps left out, evaluations, checkpoints, other batches, exceptions, models."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from divergence_case import AT, MIDDLE, Case, InterruptionError, Place
from torch import Tensor

if TYPE_CHECKING:
    from divergence_train import Loop


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


class IterationMarks(Case):
    """An iteration that begins without its mark, or with two: whoever counts them is wrong by one from then on."""

    def __init__(self, text: str, marks: int) -> None:
        self.text, self.marks, self.settles = text, marks, marks > 0

    def iteration_marks(self, iteration: int) -> int:
        return self.marks if iteration == AT else 1

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration == AT:
            loop.disturbed()


class OutputsDropped(Case):
    """What the last iteration left in variables goes before the next one replaces it."""

    text = "outputs kept in variables dropped once"

    def begin(self, loop: Loop, iteration: int) -> None:
        if iteration == AT:
            loop.outputs.clear()
            loop.disturbed()


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
