"""Ranks by the thousand on one screen: spans of them, and ranges of what they say. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

MOST_SHOWN = 8  # ranks one by one; and spans in a line
MANY = MOST_SHOWN + 1


def listed(ranks: Sequence[int], most: int = MOST_SHOWN) -> str:
    """As "0-3, 7"; ascending. Beyond `most` spans, how many ranks more there are."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans[:most])
    more = sum(last - first + 1 for first, last in spans[most:])
    return f"{text} and {more} more" if more else text


def counted(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def ranged(values: Sequence[float], told: Callable[[float], str]) -> str:
    """As "1.20 GiB to 1.31 GiB"; one of them where both read alike. REQUIRES: values."""
    least, most = told(min(values)), told(max(values))
    return least if least == most else f"{least} to {most}"
