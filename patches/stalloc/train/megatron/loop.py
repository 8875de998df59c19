"""What the marks of one training loop have to know of each other. One thread runs the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

from stalloc.train import api

# The model chunk (virtual pipeline stage), and the micro-batch as the schedule counts it in that chunk.
Place = tuple[int, Optional[int]]


class Loop:
    """Pairs each backward pass with its forward pass, and keeps marks out of what is fenced.

    Schedules pass nothing but tensors to the backward pass: the forward pass's output is the same object, even where
    its data is deallocated in between. Only its id is kept, so nothing lives longer for us.
    """

    def __init__(self) -> None:
        self._fences = 0
        self._optimizers = 0
        self._places: dict[int, Place] = {}

    @property
    def marks(self) -> bool:
        """False inside a fence: evaluation runs the same schedules, and a capture must not meet a mark."""
        return self._fences == 0

    def begin_iteration(self) -> None:
        """Forward passes without a backward pass (an exception, a rerun) are forgotten."""
        self._places.clear()

    @contextlib.contextmanager
    def fence(self, kind: str) -> Iterator[None]:
        self._fences += 1
        try:
            with api.fence(kind):
                yield
        finally:
            self._fences -= 1

    @contextlib.contextmanager
    def optimizer(self) -> Iterator[None]:
        """The outermost step is marked: an optimizer of optimizers steps them."""
        self._optimizers += 1
        try:
            if self._optimizers == 1 and self.marks:
                with api.optimizer():
                    yield
            else:
                yield
        finally:
            self._optimizers -= 1

    def remember(self, output: Any, place: Place) -> None:
        """The forward pass at `place` gave `output`: a tensor, a list or a dict of them."""
        tensor = _first_tensor(output)
        if tensor is not None:
            self._places[id(tensor)] = place

    def recall(self, output: Any) -> Place:
        """Whose output it is; one of unknown origin is counted by the marker."""
        return self._places.pop(id(_first_tensor(output)), (0, None))


def _first_tensor(output: Any) -> Any:
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else (output,)
    for value in values:
        tensor = _first_tensor(value) if isinstance(value, (list, tuple, dict)) else value
        if tensor is not None:
            return tensor
    return None


LOOP = Loop()
