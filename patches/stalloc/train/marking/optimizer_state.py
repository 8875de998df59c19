"""Where optimizers make their state, so that a run that loads it from a checkpoint finds the places planned for it.

torch's Adam makes it group by group (`_init_group`, patched in frameworks/optimizer_state.py); others, Apex' and
TransformerEngine's FusedAdam among them, somewhere in their first step, which is marked as a whole. Loading
(allocator/engine/follow/script_cursor.h) is marked in the same parts.

A step that is given a closure runs whole passes: state is what it makes between the closure's first call and the next.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional

from stalloc.train.marking.marks import Marker, OpenMark

Call = tuple[Any, Any]  # arguments, keywords
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

    def before_step(self, optimizer: Any, arguments: Any, keywords: Any) -> Optional[Call]:
        """What the step is to be called with instead, where it is given a closure (torch: (optimizer, closure))."""
        if optimizer in self._stepped:
            return None
        self._stepped.add(optimizer)
        if makes_it_by_group(optimizer) or getattr(optimizer, "state", True):
            return None
        replaced = _with_closure(arguments, keywords, lambda closure: self._around(closure, id(optimizer)))
        if replaced is None:
            self._begin(id(optimizer))
        return replaced

    def after_step(self, optimizer: Any) -> None:
        self._end(id(optimizer))

    def _around(self, closure: Callable[..., Any], step: int) -> Callable[..., Any]:
        calls = 0

        def called(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            self._end(step)
            result = closure(*arguments, **keywords)
            if calls == 1:  # one mark, as where it is loaded: they are counted
                self._begin(step)
            return result

        return called

    def _begin(self, step: int) -> None:
        self._open[step] = self._marker.layer(OPTIMIZER_STATE, "O")

    def _end(self, step: int) -> None:
        mark = self._open.pop(step, None)
        if mark is not None:
            mark.__exit__(None, None, None)


def _with_closure(arguments: Any, keywords: Any, around: Callable[[Any], Any]) -> Optional[Call]:
    """The call with the closure replaced; None where it has none."""
    if callable(keywords.get("closure")):
        return arguments, {**keywords, "closure": around(keywords["closure"])}
    if len(arguments) > 1 and callable(arguments[1]):
        return (arguments[0], around(arguments[1]), *arguments[2:]), keywords
    return None
