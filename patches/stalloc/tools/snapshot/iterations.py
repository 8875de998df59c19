"""Finds where a history's iterations begin, by the period with which its requests repeat
(planner/analysis/period.h)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from stalloc.tools.report.session import Session

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


def find_cut(sizes: Sequence[int], live_before: Sequence[int]) -> Cut:
    """Iterations by the best period that does not pile up. CollectError.

    `live_before` has the bytes that are live before each request, and may have those in the end, too: an iteration
    begins where least is live, which is after the optimizer. What comes before the first cut is set-up (and warm-up,
    where it requests something else).
    """
    with Session() as session:
        found = session.query("period", sizes=sizes, live_before=live_before)
    return Cut(found["begins"], None if found["pile"] is None else Pile(**found["pile"]))


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
