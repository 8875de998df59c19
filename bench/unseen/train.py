"""Trains one of the workloads whose next iteration no plan can know. To be replayed by replay.py, or under Alloc.

    STALLOC_DEVICE=cpu STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=traces/var-pad OMP_NUM_THREADS=1 \\
        stalloc run bench/unseen/train.py var-pad --iterations 20
    python bench/unseen/train.py --list

`--scale` makes widths and tokens larger, for a GPU.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from models import MasterWeightAdamW, Sizes
from programs import Adversarial, Plan
from routing import Draw, Router, Sequences
from torch import Tensor
from workloads import WORKLOADS, Workload

import stalloc


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=list(WORKLOADS), metavar="NAME", help="see --list")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--scale", type=int, default=1, help="widths and tokens, so many times")
    parser.add_argument("--seed", type=int, default=0, help="of tokens per expert and of lengths")
    parser.add_argument("--fit", help="what stalloc.apply does to the model")
    parser.add_argument("--list", action="store_true", help="list the workloads and exit")
    arguments = parser.parse_args()
    if arguments.name is None and not arguments.list:
        parser.error("expected the NAME of a workload, or --list")
    return arguments


class Training:
    """A workload and its loop, marked for stalloc."""

    def __init__(self, workload: Workload, arguments: argparse.Namespace) -> None:
        sizes = Sizes().times(arguments.scale)
        self.workload = workload
        self.draw = Draw(sizes.tokens, arguments.iterations, 7 + arguments.seed)
        experts = workload.experts
        self.router = Router(experts, workload.layers, 3 + arguments.seed) if experts is not None else None
        self.program: Any = workload.program(Plan(sizes, workload.layers, workload.recompute, self.router))
        self.make_optimizers()

    def make_optimizers(self) -> None:
        self.optimizer = MasterWeightAdamW(self.program.parameters())

    def mark_pass(self, kind: str, number: int) -> None:
        if self.workload.marks_passes:
            stalloc.microbatch(kind, number)

    def iteration(self, index: int) -> float:
        """The mean loss of its micro-batches."""
        stalloc.iteration(index)
        micro_batches = self.workload.micro_batches_of(self.draw, index)
        total = torch.zeros(())
        for number in range(micro_batches):
            total += self.micro_batch(index, number, micro_batches)
        if self.workload.marks_passes:
            stalloc.optimizer()
        self.optimizer.step()
        return total.item()

    def micro_batch(self, index: int, number: int, micro_batches: int) -> Tensor:
        self.mark_pass("F", number)
        shape = self.workload.shape(self.draw, index, number)
        if self.workload.reports_tokens:
            stalloc.tokens(shape.tokens)
        if self.router is not None:
            self.router.begin(index)
        loss = self.program(shape) / micro_batches
        self.mark_pass("B", number)
        loss.backward()
        return loss.detach()


class AdversarialTraining(Training):
    """Two passes an iteration: the discriminator's, with an optimizer step after it, and the generator's."""

    program: Adversarial

    def make_optimizers(self) -> None:
        self.optimizer = MasterWeightAdamW(self.program.generator.parameters())
        self.discriminating = MasterWeightAdamW(self.program.discriminating())

    def iteration(self, index: int) -> float:
        """The generator's loss."""
        stalloc.iteration(index)
        shape = self.workload.shape(self.draw, index, 0)
        assert isinstance(shape, Sequences)
        noise = self.program.noise(shape.count, shape.length)
        self.discriminate(noise, shape)
        loss = self.generate(noise)
        stalloc.optimizer()
        self.optimizer.step()
        return loss.item()

    def discriminate(self, noise: Tensor, shape: Sequences) -> None:
        self.mark_pass("F", 0)
        loss = self.program.discriminator_loss(noise, self.program.noise(shape.count, shape.second_length))
        self.mark_pass("B", 0)
        loss.backward()
        self.discriminating.step()

    def generate(self, noise: Tensor) -> Tensor:
        self.mark_pass("F", 1)
        loss = self.program.generator_loss(noise)
        self.mark_pass("B", 1)
        loss.backward()
        for parameter in self.program.discriminating():
            parameter.grad = None
        return loss.detach()


def listing() -> str:
    width = max(map(len, WORKLOADS))
    return "\n".join(f"{name:{width}}  {workload.varies}" for name, workload in WORKLOADS.items())


def main() -> int:
    arguments = parse_arguments()
    if arguments.list:
        print(listing())
        return 0
    torch.manual_seed(1)
    torch.set_default_device(arguments.device)
    workload = WORKLOADS[arguments.name]
    kind = AdversarialTraining if workload.program is Adversarial else Training
    training = kind(workload, arguments)
    if arguments.fit is not None:
        stalloc.apply(arguments.fit, training.program)
    losses = [training.iteration(index) for index in range(arguments.iterations)]
    print(f"{arguments.name}: {len(losses)} iterations, last loss {losses[-1]:.6f}" if losses else "no iterations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
