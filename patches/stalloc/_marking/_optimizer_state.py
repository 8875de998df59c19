"""Where optimizers make their state, so that a run that loads it from a checkpoint finds the places planned for it.

torch's Adam makes it group by group (`_init_group`, patched in frameworks/optimizer_state.py); others, Apex' and
TransformerEngine's FusedAdam among them, somewhere in their first step, which is marked as a whole. Loading
(allocator/engine/follow/script_cursor.h) is marked in the same parts.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

from stalloc._marking._marks import Marker, OpenMark

OPTIMIZER_STATE = "optimizer_state"  # the mark's name


def makes_it_by_group(optimizer: Any) -> bool:
    """True for torch's Adam, AdamW and what inherits from them."""
    adam = getattr(sys.modules.get("torch.optim"), "Adam", None)
    return adam is not None and getattr(type(optimizer), "_init_group", None) is adam._init_group


def parts(optimizer: Any) -> list[Sequence[dict[str, Any]]]:
    """The groups of parameters whose state is made under one mark, in order."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    return [[group] for group in groups] if makes_it_by_group(optimizer) else [groups]


class FirstSteps:
    """Marks the first step of each optimizer that has no mark of its own and no state yet."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._open: dict[int, OpenMark] = {}

    def before_step(self, optimizer: Any) -> None:
        if optimizer in self._stepped:
            return
        self._stepped.add(optimizer)
        if not makes_it_by_group(optimizer) and not getattr(optimizer, "state", True):
            self._open[id(optimizer)] = self._marker.layer(OPTIMIZER_STATE, "O")

    def after_step(self, optimizer: Any) -> None:
        mark = self._open.pop(id(optimizer), None)
        if mark is not None:
            mark.__exit__(None, None, None)
