"""What people do by hand where memory is short, as contenders of the search: all layers recomputed, and the largest
micro-batch by halving or doubling; and a compiled model under torch's activation_memory_budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Optional

from kinds import KINDS, rows_of
from known import Configuration
from search import Attempt, Outcome

NATIVE, EXPANDABLE, BUDGET = "hand-native", "hand-expandable", "budget"
BY_HAND = (NATIVE, EXPANDABLE, BUDGET)
_MOST = 6  # sizes that are tried
_BUDGETS = (0.5, 0.0)  # of a layer's activations, as torch counts them: at all rows of a step, then with fewer rows
_GROWS = 0.5  # where there is no largest micro-batch
_ALL = Configuration(1, (), (), "{}", ("--recompute-all",))

Attempted = Callable[[Configuration], Optional[Outcome]]


def search_by_hand(contender: str, program: str, size: str, attempt: Attempted) -> list[Attempt[Configuration]]:
    """All attempts in their order. `attempt`: trains with it; None: there is no time left."""
    rows = rows_of(program, size)
    count = rows.count if rows is not None else 0
    if contender != BUDGET:
        return _largest(_ALL, program, count, attempt)
    found: list[Attempt[Configuration]] = []
    for budget in _BUDGETS if count else [_GROWS]:
        one = Configuration(1, (), (), "{}", ("--activation-budget", str(budget)))
        found += _largest(one, program, count, attempt, most=1 if count and budget else _MOST)
        if any(each.outcome.fits for each in found):
            break
    return found


def _largest(
    configuration: Configuration, program: str, count: int, attempt: Attempted, most: int = _MOST
) -> list[Attempt[Configuration]]:
    """A step's rows at once, then half of them, until it runs; where a step has no given rows (`count` is 0), twice as
    many as were traced as long as they run."""
    grows = count == 0
    found: list[Attempt[Configuration]] = []
    for micro_batch in _sizes(count or KINDS[program].traced.micro_batch, grows, most):
        one = dataclasses.replace(configuration, micro_batch=micro_batch)
        outcome = attempt(one)
        if outcome is None:
            break
        found.append(Attempt(0, one, outcome))
        if outcome.fits != grows:
            break
    return found


def _sizes(first: int, grows: bool, most: int) -> Iterator[int]:
    size = first
    for _ in range(most):
        yield size
        if not grows and size == 1:
            return
        size = 2 * size if grows else size // 2
