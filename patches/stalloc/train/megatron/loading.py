"""Optimizer state that a checkpoint brings: into the places that a plan of a run from scratch has for it.

Megatron makes the state (`sharded_state_dict`, under the mark that finds those places), reads the checkpoint into it,
and puts together anew what it had split for the file: both halves of a SwiGLU weight, say. The whole tensor comes while
the halves are still there, so it takes memory that the steady iterations need, for ever. Once the loading is over, the
halves are gone: such tensors then move to their places, one at a time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from stalloc.train import api
from stalloc.train.marking.optimizer_state import OPTIMIZER_STATE, parts
from stalloc.train.patching import Function, argument

Place = tuple[int, str]  # id of the parameter, name of the tensor


class LoadedState:
    """The loading of one rank. One thread loads."""

    def __init__(self) -> None:
        self._depth = 0
        self._made: list[tuple[Any, dict[Place, int]]] = []  # torch's optimizer, addresses

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """What is made inside moves at its end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            made = self._made if self._depth == 0 else []
            if made:
                self._made = []
        for optimizer, addresses in made:
            _move(optimizer, addresses)

    def made(self, optimizer: Any) -> None:
        """The state of one of torch's optimizers is there, and in its places."""
        if self._depth > 0:
            values = _values_of(optimizer, optimizer.param_groups)
            self._made.append((optimizer, {place: value.data_ptr() for place, value in values}))


def loading(original: Function, state: LoadedState) -> Function:
    """load_checkpoint: a phase of the set-up, not a fence.

    What it allocates stays (the optimizer's state), so a trace of a resumed run must plan it.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with api.layer("load_checkpoint", "O"), state.loading():
            return original(*args, **kwargs)

    return wrapper


def optimizer_state(original: Function, state: LoadedState) -> Function:
    """sharded_state_dict: makes the optimizer's state where a checkpoint is about to be loaded into it."""
    loads = argument(original, "is_loading")

    def sharded_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner, init_state = getattr(self, "optimizer", None), getattr(self, "init_state_fn", None)
        if loads((self, *args), kwargs) and inner is not None and init_state is not None:
            _make(inner, init_state, self.config)
            state.made(inner)
        return original(self, *args, **kwargs)

    return sharded_state_dict


def _make(optimizer: Any, init_state: Callable[[Any, Any], None], config: Any) -> None:
    """What the original does first, but under the marks of a first step."""
    groups = optimizer.param_groups
    try:
        for part in parts(optimizer):
            with api.layer(OPTIMIZER_STATE, "O"):
                optimizer.param_groups = part
                init_state(optimizer, config)
    finally:
        optimizer.param_groups = groups


def _move(optimizer: Any, addresses: dict[Place, int]) -> None:
    """What lies elsewhere than it was made, or comes from the file alone.

    The plan's slots are found by consecutive requests, so all of the state is requested, as in a first step;
    memory for state that stays in place is freed at once.
    """

    def moves(place: Place, value: Any) -> bool:
        return bool(addresses.get(place) != value.data_ptr())

    if not any(moves(*each) for each in _values_of(optimizer, optimizer.param_groups)):
        return
    for part in parts(optimizer):
        with api.layer(OPTIMIZER_STATE, "O"):
            for place, value in _values_of(optimizer, part):
                copy = sys.modules["torch"].empty_like(value)
                if moves(place, value):
                    value.data = copy.copy_(value)  # the tensor stays the object that it was


def _values_of(optimizer: Any, groups: Sequence[dict[str, Any]]) -> Iterator[tuple[Place, Any]]:
    """Tensors of the groups' state, of each parameter first the step, as optimizers make them."""
    for parameter in (parameter for group in groups for parameter in group["params"]):
        values = [(n, v) for n, v in optimizer.state.get(parameter, {}).items() if hasattr(v, "data_ptr")]
        for name, value in sorted(values, key=lambda item: item[1].dim() > 0):
            yield (id(parameter), name), value
