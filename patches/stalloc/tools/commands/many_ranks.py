"""Ranks by the thousand on one screen: spans of them, and ranges of what they say. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

MOST_SHOWN = 8  # ranks one by one; and spans in a line
MANY = MOST_SHOWN + 1
_FEWEST_IN_STEPS = 4


def listed(ranks: Sequence[int], most: int = MOST_SHOWN) -> str:
    """The ranks as "0-3, 7, 9-1021 by 4"; ascending. Beyond `most` spans, how many ranks more there are."""
    spans: list[Sequence[int]] = []
    begin = 0
    while begin < len(ranks):
        spans.append(_span(ranks[begin:]))
        begin += len(spans[-1])
    more = sum(map(len, spans[most:]))
    return ", ".join(map(_worded, spans[:most])) + (f" and {more} more" if more else "")


def _span(ranks: Sequence[int]) -> Sequence[int]:
    """The first of them that are equally far apart; more than one apart only where it is worth saying."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    count = 1
    while count < len(ranks) and ranks[count] - ranks[count - 1] == step:
        count += 1
    return ranks[: count if step == 1 or count >= _FEWEST_IN_STEPS else 1]


def _worded(span: Sequence[int]) -> str:
    if len(span) == 1:
        return str(span[0])
    step = span[1] - span[0]
    return f"{span[0]}-{span[-1]}" + (f" by {step}" if step > 1 else "")


def counted(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def ranged(values: Sequence[float], worded: Callable[[float], str]) -> str:
    """The range as "1.20 GiB to 1.31 GiB"; one figure if both read alike. REQUIRES: values."""
    least, most = worded(min(values)), worded(max(values))
    return least if least == most else f"{least} to {most}"
