"""Where a history's iterations begin, by the period with which its requests repeat.

Sizes that come in a pattern which repeats are spaced evenly in the list of requests; each such spacing is a candidate,
and the period is the one at which all of these sizes come again: at a micro-batch's spacing the optimizer's do not.
Sizes that depend on data have no even spacing and take no part.

What repeats and piles up is no iteration: the layers of a forward pass that keeps its activations repeat, too, and live
bytes do not come back to where they were. Such a period is passed over.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Optional

_OFTEN = 64  # a size that occurs more often says little: temporaries of every layer
_LEAST_SIZES = 3
_CANDIDATES = 60
_LEAST_PERIOD = 8  # fewer requests are no iteration
_REPEATED = 0.5  # of the sizes' places: below it nothing repeats
_AS_GOOD = 0.98
_ALIKE = 0.8  # of the likeness of the last two iterations, for an earlier one to belong to the loop
# Live bytes come back to the same level, but for so much of what an iteration has above it. A program that leaks more
# does not get far; a layer that is recomputed keeps its input alone, a thirtieth of what it needs inside.
_COMES_BACK = 0.02


@dataclasses.dataclass(frozen=True)
class Pile:
    """Repeats that were taken for no iterations, since live bytes do not come back to the same level."""

    repeats: int
    requests: int  # of each
    bytes: int  # by which live bytes grow in each; negative: shrink


@dataclasses.dataclass(frozen=True)
class Cut:
    begins: list[int]  # the requests that begin an iteration, ascending; empty if none was found
    pile: Optional[Pile] = None  # where nothing was found: what repeats all the same


def find_period(sizes: Sequence[int]) -> int:
    """Requests an iteration, as far as sizes tell; 0 if nothing repeats."""
    return next(iter(_periods(sizes)), 0)


def cut(sizes: Sequence[int], live_before: Sequence[int]) -> list[int]:
    """The requests that begin an iteration, as find_cut has them."""
    return find_cut(sizes, live_before).begins


def find_cut(sizes: Sequence[int], live_before: Sequence[int]) -> Cut:
    """Iterations by the best period that does not pile up.

    `live_before` has the bytes that are live before each request, and may have those in the end, too: an iteration
    begins where least is live, which is behind the optimizer. What comes before the first cut is set-up (and warm-up,
    where it asks for something else).
    """
    pile: Optional[Pile] = None
    for period in _periods(sizes):
        begins = _begins(sizes, live_before, period)
        ends = [*begins, begins[-1] + period]
        levels = [live_before[at] for at in ends if at < len(live_before)]
        spans = zip(ends, ends[1:])
        tops = [max(map(sum, zip(live_before[begin:end], sizes[begin:end]))) for begin, end in spans]
        growth = piled_up(levels, tops)
        if growth is None:
            return Cut(begins)
        pile = pile or Pile(len(levels) - 1, period, growth)
    return Cut([], pile)


def piled_up(levels: Sequence[int], tops: Sequence[int]) -> Optional[int]:
    """The bytes by which each supposed iteration lifts what is live; None where it comes back, as iterations do.

    `levels`: live bytes where each begins, and where the last one ends; `tops`: the most inside each. One in the middle
    decides: the first iterations make state that stays.
    """
    growths = []
    for before, after, top in zip(levels, levels[1:], tops):
        growths.append((abs(after - before) / max(1, top - min(before, after)), after - before))
    growths.sort()
    if not growths:
        return None
    share, growth = growths[(len(growths) - 1) // 2]
    return growth if share > _COMES_BACK else None


# Requests an iteration, the most likely first.
def _periods(sizes: Sequence[int]) -> list[int]:
    places: dict[int, list[int]] = {}
    for at, size in enumerate(sizes):
        places.setdefault(size, []).append(at)
    even: list[list[int]] = []
    votes: Counter[int] = Counter()
    for of_size in places.values():
        wide = of_size[-1] - of_size[0] >= len(sizes) // 3
        spacing = _spacing(of_size) if wide and 3 <= len(of_size) <= _OFTEN else None
        if spacing is not None:
            even.append(of_size)
            votes[spacing] += 1
    if len(even) < _LEAST_SIZES:
        return []
    candidates = [lag for lag, _ in votes.most_common(_CANDIDATES) if _LEAST_PERIOD <= lag <= len(sizes) // 2]
    scores = {lag: _repeated(even, lag, len(sizes)) for lag in candidates}
    good = _AS_GOOD * max(scores.values(), default=0.0)
    return sorted(
        (lag for lag, score in scores.items() if score >= _REPEATED),
        key=lambda lag: (scores[lag] < good, lag if scores[lag] >= good else -scores[lag]),
    )


def _begins(sizes: Sequence[int], live_before: Sequence[int], period: int) -> list[int]:
    # Not in the last period, which may be an evaluation or cut off, if there is another.
    begin = max(0, len(sizes) - (2 if len(sizes) >= 3 * period else 1) * period)
    first = min(range(begin, min(begin + period, len(sizes))), key=lambda at: live_before[at])
    cuts = [first, first + period] if first + period < len(sizes) else [first]
    enough: Optional[float] = None
    while cuts[0] >= period:
        likeness = _likeness(sizes, cuts[0] - period, period)
        if enough is not None and likeness < enough:
            break
        if enough is None:
            enough = _ALIKE * likeness
        cuts.insert(0, cuts[0] - period)
    return cuts


# The distance between each place and the one `step` places later, where it is the same for the last ones: a size that
# comes `step` times an iteration.
def _spacing(places: Sequence[int]) -> Optional[int]:
    for step in range(1, len(places) // 2 + 1):
        gaps = {later - earlier for earlier, later in zip(places[-2 - step :], places[-2:])}
        gaps.update(later - earlier for earlier, later in zip(places[-2 * step : -step], places[-step:]))
        if len(gaps) == 1:
            return gaps.pop()
    return None


# Share of the places in the second half that are places again `lag` requests earlier; each size counts the same.
def _repeated(sizes: Sequence[Sequence[int]], lag: int, requests: int) -> float:
    total = 0.0
    for of_size in sizes:
        late = [place for place in of_size if place >= max(lag, requests // 2)]
        known = set(of_size)
        total += sum(place - lag in known for place in late) / len(late) if late else 0.0
    return total / len(sizes)


# Share of the requests from `begin` that have one of the same size a period later.
def _likeness(sizes: Sequence[int], begin: int, period: int) -> float:
    end = min(begin + period, len(sizes) - period)
    same = sum(one == other for one, other in zip(sizes[begin:end], sizes[begin + period :]))
    return same / (end - begin) if end > begin else 1.0
