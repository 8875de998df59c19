"""The fastest configuration that fits, found by few attempts: the same search for every allocator.

A proposal is what `stalloc fit` would choose for so much memory, at first a little less than there is. It is attempted;
where memory runs out, less is assumed, where some is left, more, until what fits and what does not are close or the
attempts are used up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, Generic, Optional, TypeVar

Configuration = TypeVar("Configuration", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of an attempt. `held` of 0: not known."""

    fits: bool
    tokens_per_second: float = 0.0
    held: int = 0
    figures: Optional[dict[str, Any]] = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class Attempt(Generic[Configuration]):
    assumed: int  # bytes of memory
    configuration: Configuration
    outcome: Outcome


_LESS, _MORE = 0.04, 0.03  # shares of the memory by which the assumption changes
_SPARE = 0.03  # what is held is below the memory by more: there is space for more
_CLOSE = 0.01  # assumptions that differ by less are one
_MARGIN = 0.004  # of the memory, that the first proposal leaves
_MOST_PROPOSALS = 6
_UNTIL_ONE_FITS = 3  # attempts at most where none of fewer has fit: a row needs one


def first_assumption(memory: int) -> int:
    """Bytes for which the first proposal is made."""
    return int(memory * (1 - _MARGIN))


def search(
    memory: int,
    propose: Callable[[int], Optional[Configuration]],
    attempt: Callable[[Configuration], Optional[Outcome]],
    most: int = 4,
) -> list[Attempt[Configuration]]:
    """All attempts in their order; `best_of` says which is meant.

    Args:
        memory: bytes that are there.
        propose: a configuration for so many bytes; None: nothing would fit.
        attempt: trains with it for a few steps; None: there is no time left.
        most: attempts; a few more where none fits.
    """
    known: dict[Configuration, Attempt[Configuration]] = {}
    assumed: Optional[int] = first_assumption(memory)
    fits, fails = 0, 0  # the largest assumption that fits, the least that does not; 0: none yet
    for _ in range(_MOST_PROPOSALS):
        enough = most if fits else max(most, _UNTIL_ONE_FITS)
        if assumed is None or assumed <= 0 or len(known) >= enough:
            break
        configuration = propose(assumed)
        if configuration is None:
            break
        if configuration not in known:
            outcome = attempt(configuration)
            if outcome is None:
                break
            known[configuration] = Attempt(assumed, configuration, outcome)
        outcome = known[configuration].outcome
        if outcome.fits:
            fits = max(fits, assumed)
        else:
            fails = min(fails or assumed, assumed)
        assumed = _next(memory, fits, fails, outcome)
    return list(known.values())


def _next(memory: int, fits: int, fails: int, last: Outcome) -> Optional[int]:
    """What is assumed next; None: it is found."""
    if not fails:
        spare = 0 < last.held < memory * (1 - _SPARE)
        return int(fits + _MORE * memory) if spare and fits < 2 * memory else None
    if not fits:
        return int(fails - _LESS * memory)
    return (fits + fails) // 2 if fails - fits > _CLOSE * memory else None


def best_of(
    attempts: list[Attempt[Configuration]], size: Optional[Callable[[Configuration], int]] = None
) -> Optional[Attempt[Configuration]]:
    """The fastest that fits; by `size`, the largest, and of those the fastest. None: nothing fits."""
    fitting = [each for each in attempts if each.outcome.fits]
    if not fitting:
        return None
    return max(fitting, key=lambda each: (size(each.configuration) if size else 0, each.outcome.tokens_per_second))
