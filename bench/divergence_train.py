"""Trains a toy model that departs from its plan in one of the ways of bench/divergence_cases.py; bench/divergence.py
starts it.

    python bench/divergence_train.py --preset toy --case dropped --json out.json
    python bench/divergence_train.py --preset toy --case dropped --case resized --json out.json   # in turn

Writes, per case: losses and weights to the last bit, and, where stalloc serves the process, its counts at the begin of
each iteration and after each disturbance.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
from divergence_case import Case, InterruptionError, Place
from divergence_cases import CASES
from torch import Tensor, nn
from train_gpt import Marks, digest_of
from workload import PRESETS, Gpt, MasterWeightAdamW, token_batches

CPU = torch.device("cpu")
# As many requests as the preset's, over less arithmetic.
SMALL = {"hidden": 64, "ffn": 176, "vocab": 256, "sequence": 48}
GUARD = 0x5A  # what every byte of a guarded tensor is
COUNTED = ("requests", "planned_hits", "dynamic_hits", "misses", "gave_up", "unknown_frees", "arena_bytes")


class Counts:
    """The allocator's counts at points of the loop; nothing without stalloc."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self._stats: Any = None
        with contextlib.suppress(ImportError):
            import stalloc

            self._stats = stalloc.stats if stalloc.installed() else None

    def take(self, event: str, iteration: int) -> None:
        if self._stats is None:
            return
        stats = self._stats()
        device = stats["devices"][0]
        point: dict[str, Any] = {key: device[key] for key in COUNTED}
        self.points.append({"event": event, "iteration": iteration, **point})


class Loop:
    """One run of one case: model, optimizer, data, and a loop that logs its activations as many do."""

    def __init__(self, arguments: argparse.Namespace, case: Case) -> None:
        torch.manual_seed(arguments.seed)
        self.arguments = arguments
        self.case = case
        self.config = dataclasses.replace(PRESETS[arguments.preset], **SMALL)
        self.marks = Marks(arguments.marks)
        self.counts = Counts()
        self.model = Gpt(self.config, CPU)
        self.optimizer = MasterWeightAdamW(self.model, 1e-3)
        self.batches = token_batches(self.config, arguments.seed, CPU)
        self.losses: list[float] = []
        self.probes: list[Tensor] = []
        self.outputs: dict[int, Tensor] = {}
        self.retain_graph = False
        self.iteration = 0
        self.caught = 0
        self._place = Place(0, 0, 0)
        self._forward = False
        for layer, block in enumerate(self.model.blocks):
            block.register_forward_hook(self._hook_of(layer))

    # What cases call ------------------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        self.counts.take("disturbed", self.iteration)

    def guard(self, tensor: Tensor) -> None:
        """Fills it with what release() expects to find."""
        tensor.view(torch.uint8).fill_(GUARD)

    def release(self, tensor: Tensor) -> None:
        if not bool((tensor.view(torch.uint8) == GUARD).all()):
            raise RuntimeError("a live tensor was overwritten")

    def fence(self, kind: str, marked: bool) -> Any:
        return self.marks.fence(kind) if marked else contextlib.nullcontext()

    def second_model(self) -> tuple[nn.Module, MasterWeightAdamW]:
        smaller = dataclasses.replace(self.config, layers=2, recompute="none", experts=0)
        model = Gpt(smaller, CPU)
        return model, MasterWeightAdamW(model, 1e-3)

    # The loop -------------------------------------------------------------------------------------------------------

    def _hook_of(self, layer: int) -> Any:
        def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
            if not self._forward or not torch.is_grad_enabled():
                return  # a recomputation, or an evaluation
            place = dataclasses.replace(self._place, layer=layer)
            self.case.after_block(self, place, output)
            if self.arguments.keep_outputs and place.micro == 0:
                self.outputs[layer] = output.detach().float()
            self._probe(place, output.detach())
            self.case.after_probes(self, place)

        return hook

    def _probe(self, place: Place, output: Tensor) -> None:
        """Two requests a block: its squares, and its greatest value a token; kept until the micro-batch is over."""
        rows = self.case.probe_rows(place, len(output))
        if rows == 0:
            return
        output = output[:rows]
        if self.case.probes_swapped(place):
            self.probes += [output.amax(-1), output.square()]
        else:
            self.probes += [output.square(), output.amax(-1)]

    def _micro_batch(self, number: int, count: int) -> float:
        self._place = Place(self.iteration, number, 0)
        self.case.before_micro_batch(self, self._place)
        self.marks.microbatch("F", number)
        self._forward = True
        loss = self.model(next(self.batches)) / count
        self._forward = False
        self.case.after_forward(self, self._place, loss)
        self.marks.microbatch("B", number)
        loss.backward(retain_graph=self.retain_graph)
        self.retain_graph = False
        value = loss.item()
        self.probes.clear()
        return value

    def _drop_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None

    def _step(self) -> None:
        self.case.begin(self, self.iteration)
        count = self.case.micro_batches(self.iteration, self.config.accumulation)
        total = 0.0
        for number in range(count):
            total += self._micro_batch(number, count)
        self.losses.append(total)
        if self.case.steps(self, self.iteration):
            self.marks.optimizer()
            self.optimizer.step()
        else:
            self._drop_gradients()
        self.case.end(self, self.iteration)

    def _recover(self) -> None:
        """After an exception: the iteration is given up."""
        self.caught += 1
        self._forward = self.retain_graph = False
        self.probes.clear()
        self._drop_gradients()
        self.disturbed()

    def run(self) -> dict[str, Any]:
        for iteration in range(self.arguments.iterations):
            self.iteration = iteration
            self.counts.take("begin", iteration)
            for _ in range(self.case.iteration_marks(iteration)):
                self.marks.iteration(iteration)
            try:
                self._step()
            except InterruptionError:
                self._recover()
        self.counts.take("begin", self.arguments.iterations)
        gc.enable()
        return {
            "losses_hex": [loss.hex() for loss in self.losses],
            "weights_sha256": digest_of(self.model),
            "caught": self.caught,
            "points": self.counts.points,
        }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="toy")
    parser.add_argument("--case", choices=sorted(CASES), action="append", dest="cases", required=True)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--marks", choices=["none", "iteration", "full"], default="full")
    parser.add_argument("--keep-outputs", action="store_true", help="blocks' outputs live into the next iteration")
    parser.add_argument("--json", type=Path, required=True, help="write the results here")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    torch.use_deterministic_algorithms(True)
    results = {name: Loop(arguments, CASES[name]()).run() for name in arguments.cases}
    temporary = arguments.json.with_suffix(".tmp")
    temporary.write_text(json.dumps(results))
    temporary.replace(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
