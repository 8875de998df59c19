"""Marks around a whole training step and what stands between two of them."""

from __future__ import annotations

from typing import Any, Callable

import stalloc
from stalloc._patching import Function, argument
from stalloc.frameworks._around import around
from stalloc.frameworks.optimizer_state import OPTIMIZER_STATE
from stalloc.megatron._loop import Loop


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
        with stalloc.iteration(number(args, kwargs)):
            return original(*args, **kwargs)

    return train_step


def fenced(original: Function, loop: Loop, kind: str) -> Function:
    """What is no part of the steady loop."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with loop.fence(kind):
            return original(*args, **kwargs)

    return wrapper


def loading(original: Function) -> Function:
    """load_checkpoint: a phase of the set-up, not a fence.

    What it allocates stays (the optimizer's state), so a trace of a resumed run must plan it.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with stalloc.layer("load_checkpoint", "O"):
            return original(*args, **kwargs)

    return wrapper


def optimizer_state(original: Function) -> Function:
    """sharded_state_dict: makes the optimizer's state where a checkpoint is about to be loaded into it."""
    loads = argument(original, "is_loading")
    marked = around(lambda: stalloc.layer(OPTIMIZER_STATE, "O"))(original)

    def sharded_state_dict(*args: Any, **kwargs: Any) -> Any:
        return (marked if loads(args, kwargs) else original)(*args, **kwargs)

    return sharded_state_dict


def optimizer(original: Function, loop: Loop) -> Function:
    """step() of Megatron's optimizers: gradients to fp32, clipping, the inner step, parameters back."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with loop.optimizer():
            return original(*args, **kwargs)

    return wrapper
