"""transformers' Trainer and accelerate.

A Trainer's step is an iteration, each of its accumulated batches a micro-batch: F until accelerate's backward, which is
B. The trace knows how many tokens each has. A loop of one's own on accelerate has B, and iterations by the steps of its
optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stalloc.train import api
from stalloc.train.frameworks.around import fenced, inputs, passes
from stalloc.train.patching import Function, Patcher, Target, argument

_TRAINER = "transformers.trainer"
TRAINER_TARGETS = (
    Target("iteration", "transformers.trainer_callback", "CallbackHandler.on_step_begin"),
    Target("optimizer", "transformers.trainer_callback", "CallbackHandler.on_pre_optimizer_step"),
    Target("forward", _TRAINER, "Trainer.training_step"),
    Target("evaluation", _TRAINER, "Trainer.evaluate"),
    Target("evaluation", _TRAINER, "Trainer.predict"),
    Target("save", _TRAINER, "Trainer._save_checkpoint"),
    Target("save", _TRAINER, "Trainer.save_model"),
)
ACCELERATE_TARGETS = (Target("backward", "accelerate.accelerator", "Accelerator.backward"),)
TARGETS = (*TRAINER_TARGETS, *ACCELERATE_TARGETS)


def _iteration(original: Function) -> Function:
    """The trainer's own number of the step, which a resumed run continues."""

    def on_step_begin(self: Any, args: Any, state: Any, *others: Any, **kwargs: Any) -> Any:
        api.iteration(getattr(state, "global_step", None))
        return original(self, args, state, *others, **kwargs)

    return on_step_begin


def _optimizer(original: Function) -> Function:
    """Its end is the next iteration's beginning."""

    def on_pre_optimizer_step(*args: Any, **kwargs: Any) -> Any:
        api.optimizer()
        return original(*args, **kwargs)

    return on_pre_optimizer_step


def _forward(original: Function) -> Function:
    """training_step, backward pass included: only the beginning is marked, the backward pass has a mark of its own."""

    inputs_of = argument(original, "inputs")

    def training_step(*args: Any, **kwargs: Any) -> Any:
        api.microbatch("F")
        batch = inputs_of(args, kwargs)
        _report_tokens(batch)
        inputs(batch)
        return original(*args, **kwargs)

    return training_step


def _report_tokens(inputs: Any) -> None:
    """Where the batch is one of a language model; on the device or not, nothing is waited for."""
    identifiers = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
    numel = getattr(identifiers, "numel", None)
    if numel is not None and numel() > 0:
        api.tokens(numel())


WRAPPERS = {
    "iteration": _iteration,
    "optimizer": _optimizer,
    "forward": _forward,
    "backward": passes("B"),
    "evaluation": fenced("eval"),
    "save": fenced("save"),
}
PATCHERS = (
    Patcher("transformers", TRAINER_TARGETS, WRAPPERS),
    Patcher("accelerate", ACCELERATE_TARGETS, WRAPPERS),
)
