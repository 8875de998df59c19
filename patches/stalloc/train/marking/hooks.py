"""Automatic marks from torch's global optimizer hooks: iterations, for scripts that place none, and first steps.

The step of one optimizer, the anchor, is the boundary between two iterations: with several (GANs, one per parameter
kind, a wrapper around another) every iteration holds one step of each, and a boundary per optimizer would cut it up.
"""

from __future__ import annotations

import importlib
import weakref
from typing import Any, Callable, Optional

from stalloc.train.marking.captured_steps import CapturedSteps
from stalloc.train.marking.marks import END, Marker
from stalloc.train.marking.names import TensorNames
from stalloc.train.marking.optimizer_state import FirstSteps

Hook = Callable[[Any, Any, Any], Any]

# So many steps of others without one of the anchor: the anchor is out of use.
_PATIENCE = 64


class OptimizerHooks:
    """Marks the optimizer's work, which a step is, and the next iteration after it."""

    def __init__(self, marker: Marker, names: Optional[TensorNames] = None) -> None:
        self._marker = marker
        self._names = names
        self._first_steps = FirstSteps(marker)
        self._anchor: Optional[weakref.ref[Any]] = None
        self._foreign_steps = 0
        self._optimizer_marked = False
        self._running: list[int] = []  # steps that have begun, one inside the other, by their optimizers' ids
        self._handles: list[Any] = []
        self._captured = CapturedSteps(self._boundary)

    def install(self, torch: Any) -> None:
        """Registers with torch.optim. A compiled step calls the hooks as they are, instead of tracing them away."""
        self._captured.install(torch)
        uncompiled: Callable[[Hook], Hook] = getattr(torch, "_disable_dynamo", lambda hook: hook)
        optimizer_module = importlib.import_module("torch.optim.optimizer")
        self._handles = [
            optimizer_module.register_optimizer_step_pre_hook(uncompiled(_unbound(self.before_step))),
            optimizer_module.register_optimizer_step_post_hook(uncompiled(_unbound(self.after_step))),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def before_step(self, optimizer: Any, arguments: Any, keywords: Any) -> Optional[tuple[Any, Any]]:
        """The pre-hook: what the step is called with instead, or None."""
        if self._names is not None:
            self._names.before_step(optimizer)
        self._end_down_to(optimizer)  # one that an exception has ended
        if not self._running:
            self._marker.step_begins()
        self._running.append(id(optimizer))
        anchor = self._living_anchor()
        if not self._optimizer_marked and (anchor is None or anchor is optimizer):
            self._optimizer_marked = True
            self._marker.automatic_optimizer()
        return self._first_steps.before_step(optimizer, arguments, keywords)

    def after_step(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        """The post-hook."""
        self._first_steps.after_step(optimizer)
        if self._names is not None:
            self._names.after_step(optimizer)
        self._end_down_to(optimizer)
        if not self._running:
            self._marker.step_ends()
        if not self._is_anchor(optimizer):
            return
        self._foreign_steps = 0
        if self._optimizer_marked:
            self._marker.automatic_optimizer(END)
        self._optimizer_marked = False
        if not self._captured.captures_step():
            self._boundary()

    def _boundary(self) -> None:
        self._marker.automatic_boundary()

    def _end_down_to(self, optimizer: Any) -> None:
        if id(optimizer) in self._running:
            del self._running[self._running.index(id(optimizer)) :]

    def _living_anchor(self) -> Optional[Any]:
        return None if self._anchor is None else self._anchor()

    def _is_anchor(self, optimizer: Any) -> bool:
        anchor = self._living_anchor()
        if anchor is optimizer:
            return True
        self._foreign_steps += 1
        if anchor is not None and self._foreign_steps < _PATIENCE:
            return False
        self._anchor = weakref.ref(optimizer)
        return True


def _unbound(method: Hook) -> Hook:
    """A function that torch can hang its own attributes on."""

    def hook(optimizer: Any, arguments: Any, keywords: Any) -> Any:
        return method(optimizer, arguments, keywords)

    return hook
