"""Marks around a whole training step and what stands between two of them."""

from __future__ import annotations

from typing import Any, Callable

from stalloc.train import api
from stalloc.train.megatron.loop import Loop
from stalloc.train.patching import Function, argument


def iteration(original: Function, loop: Loop, before_first: Callable[[], None]) -> Function:
    """train_step: an iteration, with the number that Megatron gives it (not 0 in a run that was resumed)."""
    number = argument(original, "iteration")
    first = True

    def train_step(*args: Any, **kwargs: Any) -> Any:
        nonlocal first
        if first:
            first = False
            before_first()
        loop.begin_iteration()
        with api.iteration(number(args, kwargs)):
            return original(*args, **kwargs)

    return train_step


def fenced(original: Function, loop: Loop, kind: str) -> Function:
    """What is no part of the steady loop."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with loop.fence(kind):
            return original(*args, **kwargs)

    return wrapper


def optimizer(original: Function, loop: Loop) -> Function:
    """step() of Megatron's optimizers: gradients to fp32, clipping, the inner step, parameters back."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with loop.optimizer():
            return original(*args, **kwargs)

    return wrapper
