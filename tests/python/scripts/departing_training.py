"""Trains a toy model that departs from its plan in the ways named: one run after the other, JSON on the last line.

    departing_training.py PRESET CASE...

Of each case: losses and weights to the last bit, and, where stalloc serves the process, its counts at the begin of each
iteration and after each disturbance.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import random
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch import Tensor

import stalloc

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from train_gpt import digest_of
from workload import PRESETS, Gpt, MasterWeightAdamW, token_batches

CPU = torch.device("cpu")
# As many requests as the preset's, over less arithmetic.
SMALL = {"hidden": 64, "ffn": 176, "vocab": 256, "sequence": 48}
GUARD = 0x5A  # in every byte of a guarded tensor
COUNTED = ("requests", "planned_hits", "dynamic_hits", "misses", "gave_up", "unknown_frees")
AT = 6  # the iteration that is disturbed; the first five show that the plan holds
MIDDLE = (AT, 1, 1)  # iteration, micro-batch, layer
ITERATIONS, KEEP = 12, 3  # in all, and those for which late frees keep their blocks
UNPLANNED_BYTES = 123_457  # a size that no model here requests


class InterruptionError(Exception):
    """What a loop catches: a bad batch, a lost worker."""


class Loop:
    """A loop that logs its activations as many do. Cases change the methods whose names have no underscore, and call
    disturbed() right after their last disturbance of an iteration."""

    def __init__(self, preset: str) -> None:
        torch.manual_seed(1234)
        self.config = dataclasses.replace(PRESETS[preset], **SMALL)
        self.model = Gpt(self.config, CPU)
        self.optimizer = MasterWeightAdamW(self.model, 1e-3)
        self.batches = token_batches(self.config, 1234, CPU)
        self.losses: list[float] = []
        self.probes: list[Tensor] = []
        self.points: list[dict[str, Any]] = []
        self.guarded: list[tuple[int, Tensor]] = []
        self.marks, self.micro_batches, self.retain_graph, self.caught = 1, self.config.accumulation, False, 0
        self.iteration, self.micro, self._forward = 0, 0, False
        for layer, block in enumerate(self.model.blocks):
            block.register_forward_hook(self._hook_of(layer))

    def begin(self) -> None:
        """Before the marks of an iteration."""

    def before_micro_batch(self) -> None: ...

    def after_block(self, output: Tensor, place: tuple[int, int, int]) -> None: ...

    def after_forward(self, loss: Tensor) -> None: ...

    def probes_of(self, output: Tensor, place: tuple[int, int, int]) -> list[Tensor]:
        return [output.square(), output.amax(-1)]

    def steps(self) -> bool:
        return True

    def disturbed(self) -> None:
        self._count("disturbed")

    def keep(self, tensor: Tensor, until: Optional[int] = None) -> None:
        """Until that iteration, or for no longer than this call; its bytes must stay as they are."""
        tensor.view(torch.uint8).fill_(GUARD)
        if until is not None:
            self.guarded.append((until, tensor))

    def run(self) -> dict[str, Any]:
        for iteration in range(ITERATIONS):
            self.iteration = iteration
            self._count("begin")
            self._release()
            self.begin()
            for _ in range(self.marks):
                stalloc.iteration(self.iteration)
            try:
                self._step()
            except InterruptionError:
                self.caught += 1
                self._forward = self.retain_graph = False
                self.probes.clear()
                self._drop_gradients()
                self.disturbed()
        self.iteration = ITERATIONS
        self._count("begin")
        gc.enable()
        computed = {"losses": [loss.hex() for loss in self.losses], "weights": digest_of(self.model)}
        return {**computed, "caught": self.caught, "points": self.points}

    def _count(self, event: str) -> None:
        if stalloc.installed():
            device = stalloc.stats()["devices"][0]
            counts = {key: device[key] for key in COUNTED}
            self.points.append({"event": event, "iteration": self.iteration, **counts})

    def _release(self) -> None:
        for until, tensor in self.guarded:
            if until == self.iteration and not bool((tensor.view(torch.uint8) == GUARD).all()):
                raise RuntimeError("a live tensor was overwritten")
        self.guarded = [(until, tensor) for until, tensor in self.guarded if until != self.iteration]

    def _hook_of(self, layer: int) -> Any:
        def hook(module: Any, arguments: Any, output: Tensor) -> None:
            if self._forward and torch.is_grad_enabled():  # neither recomputed nor evaluated
                place = (self.iteration, self.micro, layer)
                self.after_block(output, place)
                self.probes += self.probes_of(output.detach(), place)

        return hook

    def _step(self) -> None:
        total = 0.0
        for micro in range(self.micro_batches):
            self.micro = micro
            self.before_micro_batch()
            stalloc.microbatch("F", self.micro)
            self._forward = True
            loss = self.model(next(self.batches)) / self.micro_batches
            self._forward = False
            self.after_forward(loss)
            stalloc.microbatch("B", self.micro)
            loss.backward(retain_graph=self.retain_graph)
            self.retain_graph = False
            total += loss.item()
            self.probes.clear()
        self.losses.append(total)
        if self.steps():
            stalloc.optimizer()
            self.optimizer.step()
        else:
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


class Undisturbed(Loop):
    def after_block(self, output: Tensor, place: tuple[int, int, int]) -> None:
        if place == MIDDLE:
            self.disturb(output)
            self.disturbed()

    def disturb(self, output: Tensor) -> None: ...


class UnknownSize(Undisturbed):
    def disturb(self, output: Tensor) -> None:
        self.keep(torch.empty(UNPLANNED_BYTES, dtype=torch.uint8))


class KnownSize(Undisturbed):
    count = 1

    def disturb(self, output: Tensor) -> None:
        for _ in range(self.count):
            self.keep(torch.empty_like(output))


class Many(KnownSize):
    count = 300


class Kept(Undisturbed):
    """A block that is freed three iterations late, in the place of a probe's."""

    def disturb(self, output: Tensor) -> None:
        self.keep(output.detach() + 1.0, until=AT + KEEP)


class OtherProbes(Loop):
    """The probe of one block has other tensors."""

    def probes_of(self, output: Tensor, place: tuple[int, int, int]) -> list[Tensor]:
        if place != MIDDLE:
            return super().probes_of(output, place)
        probes = self.others(output)
        self.disturbed()
        return probes

    def others(self, output: Tensor) -> list[Tensor]:
        return []


class Resized(OtherProbes):
    def others(self, output: Tensor) -> list[Tensor]:
        half = output[: len(output) // 2]
        return [half.square(), half.amax(-1)]


class Reordered(OtherProbes):
    def others(self, output: Tensor) -> list[Tensor]:
        return [output.amax(-1), output.square()]


class GraphKept(Loop):
    """The loss of a micro-batch keeps its graph, hence all activations, for three iterations."""

    kept: Optional[Tensor] = None

    def after_forward(self, loss: Tensor) -> None:
        if (self.iteration, self.micro) == (AT, 1):
            self.retain_graph, self.kept = True, loss
            self.disturbed()

    def begin(self) -> None:
        if self.iteration == AT + KEEP:
            self.kept = None


class Skipped(Loop):
    """The optimizer does not step, as after an overflow in fp16."""

    def steps(self) -> bool:
        if self.iteration == AT:
            self.disturbed()
        return self.iteration != AT


class Evaluated(Loop):
    """An evaluation between two micro-batches, without a mark."""

    def before_micro_batch(self) -> None:
        if (self.iteration, self.micro) == (AT, 2):
            with torch.no_grad():
                self.losses += [self.model(next(self.batches)).item() for _ in range(2)]
            self.disturbed()


class OtherBatch(Loop):
    """Another batch size from then on."""

    def begin(self) -> None:
        if self.iteration == AT:
            self.config.micro_batch = 3
            self.disturbed()


class MoreMicroBatches(Loop):
    def begin(self) -> None:
        self.micro_batches = self.config.accumulation + (self.iteration == AT)
        if self.iteration == AT:
            self.disturbed()


class Unmarked(Loop):
    """An iteration without its mark: whoever counts them is wrong by one from then on."""

    def begin(self) -> None:
        self.marks = int(self.iteration != AT)
        if self.iteration == AT:
            self.disturbed()


class Raised(Loop):
    """An exception in the middle of a forward pass, which the loop catches."""

    def after_block(self, output: Tensor, place: tuple[int, int, int]) -> None:
        if place == MIDDLE:
            self.interrupt(output)

    def interrupt(self, output: Tensor) -> None:
        raise InterruptionError


class RaisedBackward(Raised):
    def interrupt(self, output: Tensor) -> None:
        output.register_hook(super().interrupt)


class SecondModel(Loop):
    """A second model is trained along from then on."""

    def before_micro_batch(self) -> None:
        if self.iteration < AT or self.micro != 1:
            return
        if self.iteration == AT:
            self.other = Gpt(dataclasses.replace(self.config, layers=2, recompute="none", experts=0), CPU)
            self.stepped = MasterWeightAdamW(self.other, 1e-3)
        loss = self.other(next(self.batches))
        loss.backward()
        self.stepped.step()
        self.losses.append(loss.item())
        self.disturbed()


class Cycles(Loop):
    """Reference cycles hold tensors until the collector runs, at random times."""

    draw = random.Random(5)

    def after_block(self, output: Tensor, place: tuple[int, int, int]) -> None:
        if self.iteration < AT:
            return
        gc.disable()
        if self.draw.random() < 0.2:
            cycle: list[Any] = [output.detach().clone()]
            cycle.append(cycle)
        if self.draw.random() < 0.15:
            gc.collect()
        if self.iteration == AT:
            self.disturbed()


CASES: dict[str, Callable[[str], Loop]] = {
    "none": Undisturbed,
    "inserted-unknown-size": UnknownSize,
    "inserted-known-size": KnownSize,
    "inserted-300": Many,
    "dropped": OtherProbes,
    "resized": Resized,
    "reordered": Reordered,
    "freed-late": Kept,
    "graph-kept": GraphKept,
    "skipped-step": Skipped,
    "evaluated": Evaluated,
    "batch-size-from": OtherBatch,
    "more-micro-batches": MoreMicroBatches,
    "iteration-unmarked": Unmarked,
    "raised-in-forward": Raised,
    "raised-in-backward": RaisedBackward,
    "second-model-from": SecondModel,
    "gc": Cycles,
}

if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    print(json.dumps({name: CASES[name](sys.argv[1]).run() for name in sys.argv[2:]}))
